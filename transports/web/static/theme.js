// Light, dark, or as the system says: before anything is painted.
"use strict";

document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "";
