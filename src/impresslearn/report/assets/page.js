(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 720px)");
  const config = {
    responsive: true, displaylogo: false, displayModeBar: true,
    modeBarButtons: [["toImage"]], toImageButtonOptions: { format: "svg" },
  };
  const set = (layout, path, value) => {
    const keys = path.split(".");
    const last = keys.pop();
    keys.reduce((part, key) => (part[key] ??= {}), layout)[last] = value;
  };
  let round = 0;
  const draw = () => {
    const mine = ++round;
    const left = Object.entries(figures[dark.matches ? "dark" : "light"]);
    const next = () => {
      if (!left.length || mine !== round) return;
      const [id, { data, layout }] = left.shift();
      const fitted = structuredClone(layout);
      if (narrow.matches) {
        for (const [path, value] of Object.entries(fitted.meta?.narrow ?? {})) set(fitted, path, value);
      }
      document.getElementById(id).style.minWidth = `${layout.meta?.width ?? 0}px`;
      Plotly.react(id, data, fitted, config);
      setTimeout(next);  // the page stays responsive between two charts
    };
    next();
  };
  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  draw();
})();
