(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 720px)");
  const draw = () => {
    for (const [id, { data, layout }] of Object.entries(figures[dark.matches ? "dark" : "light"])) {
      layout.xaxis.tickangle = narrow.matches ? -90 : -45;
      layout.xaxis.tickfont.size = narrow.matches ? 9 : 12;
      Plotly.react(id, data, { ...layout }, { responsive: true, displayModeBar: false });
    }
  };
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  draw();
})();
