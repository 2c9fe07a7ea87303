// Times in the browser's zone, and times and numbers as its language writes them. Without it they are UTC, and English.
"use strict";

const YEAR = new Date().getFullYear();
const written = (options) => new Intl.DateTimeFormat([], options);
const DAY = { month: "short", day: "numeric" };
const SHORT = written({ ...DAY, hour: "2-digit", minute: "2-digit", second: "2-digit" });
const LONG = written({ dateStyle: "full", timeStyle: "long" });
const DATE = written({ ...DAY, weekday: "short", timeZone: "UTC" });
const OTHER_YEAR = written({ ...DAY, year: "numeric", timeZone: "UTC" });

function writeTime(made) {
  const given = made.dateTime;
  const at = new Date(given);
  if (Number.isNaN(at.getTime())) return;
  if (given.length === 10) { // a day of the bot, which is one of UTC
    made.textContent = (at.getUTCFullYear() === YEAR ? DATE : OTHER_YEAR).format(at);
    return;
  }
  made.textContent = (at.getFullYear() === YEAR ? SHORT : LONG).format(at);
  made.title = `${LONG.format(at)}, ${given.slice(0, 19).replace("T", " ")} UTC`;
}

const number = (options) => new Intl.NumberFormat([], options);
const unit = (name, digits) => number({ style: "unit", unit: name, unitDisplay: "short", maximumFractionDigits: digits });
const COUNT = number();
const USD = number({ style: "currency", currency: "USD" });
const SMALL_USD = number({ style: "currency", currency: "USD", maximumFractionDigits: 4 });
const SECONDS = unit("second", 1);
const MINUTES = unit("minute", 1);

function writeNumber(made) {
  const value = Number(made.value);
  if (made.dataset.as === "usd") made.textContent = (value > 0 && value < 0.01 ? SMALL_USD : USD).format(value);
  else if (made.dataset.as === "seconds") made.textContent = value < 120 ? SECONDS.format(value) : MINUTES.format(value / 60);
  else made.textContent = COUNT.format(value);
}

document.querySelectorAll("time").forEach(writeTime);
document.querySelectorAll("data").forEach(writeNumber);

const zone = document.getElementById("zone");
if (zone) {
  const offset = written({ timeZoneName: "shortOffset" }).formatToParts(new Date()).find((part) => part.type === "timeZoneName").value;
  zone.textContent = `Times: ${written().resolvedOptions().timeZone} (${offset}); days: UTC`;
}
