// What scrolls can be scrolled from the keyboard, too, and its edge fades while there is more to the right; charts scroll where they are wider than the page.
document.addEventListener("DOMContentLoaded", () => {
  // A screen reader lists both columns beside the page by their names.
  document.querySelector(".sidebar-drawer").ariaLabel = "All pages";
  document.querySelector(".toc-drawer").ariaLabel = "On this page";
  document.querySelectorAll('article img[src$=".svg"], img.chart').forEach((image) => {
    const box = document.createElement("div");
    box.className = "wide";
    image.replaceWith(box);
    box.append(image);
    // The words of charts up to this width can still be read where a phone shows all of the chart.
    image.decode().then(() => box.classList.toggle("whole", image.naturalWidth < 620));
  });
  // Code, but not what it printed, has a button that copies it; only secure pages may copy.
  const copied = "article .highlight:not(.output .highlight) > pre";
  document.querySelectorAll(navigator.clipboard ? copied : "none").forEach((code) => {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    code.before(button);
  });
  const showMore = (block) => {
    const shown = block.scrollLeft + block.clientWidth;
    block.classList.toggle("more", shown < block.scrollWidth - 1);
    block.tabIndex = block.scrollWidth > block.clientWidth ? 0 : -1;
  };
  const sizes = new ResizeObserver((changes) => changes.forEach((change) => showMore(change.target)));
  document.querySelectorAll("pre, .table-wrapper, .wide").forEach((block) => {
    block.addEventListener("scroll", () => showMore(block));
    sizes.observe(block);
  });
});
