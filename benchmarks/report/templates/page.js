const charts = JSON.parse(document.getElementById("charts").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const views = [];
const embed = {
  ast: true,  // expressions are interpreted: the policy of the page forbids eval
  renderer: "svg",
  actions: { export: true, source: false, compiled: false, editor: false },
};
(async () => {
  for (const [id, spec] of Object.entries(charts)) {
    for (const each of spec.params) if (each.name === "dark") each.value = dark.matches;
    const { view } = await vegaEmbed(document.getElementById(id), spec, embed);
    views.push(view);
    await new Promise((resume) => setTimeout(resume));  // the page stays responsive between two
  }
})();
dark.addEventListener("change", () => {
  for (const view of views) view.signal("dark", dark.matches).run();
});
