// Code that scrolls can be scrolled from the keyboard, too.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("pre").forEach((block) => block.setAttribute("tabindex", "0"));
});
