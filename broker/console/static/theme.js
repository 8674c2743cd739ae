// Applies the chosen theme before anything is drawn.
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch { /* a browser that stores nothing follows the system */ }
