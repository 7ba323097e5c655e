// What scrolls can be scrolled from the keyboard, too; charts scroll where they are wider than the page.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll('article img[src$=".svg"], img.chart').forEach((image) => {
    const box = document.createElement("div");
    box.className = "wide";
    image.replaceWith(box);
    box.append(image);
  });
  document.querySelectorAll("pre, .table-wrapper, .wide").forEach((block) => block.setAttribute("tabindex", "0"));
});
