// Numbers and moments as people read them.

/** Clocks that differ by less than this are taken for the same. */
const SAME_MS = 3000;
let ahead = 0;

/** Learn what time it is where moments come from. A computer whose clock is wrong would say that something happens in an hour which has happened. */
export function learnTime(server: string | null): void {
  const difference = server === null ? NaN : Date.now() - Date.parse(server);
  ahead = Math.abs(difference) > SAME_MS ? difference : 0;
}

/** Now, by the clock of the API server, in milliseconds since 1970. */
export const now = () => Date.now() - ahead;

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) {
    return "not known";
  }
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  if (seconds < 120) {
    return `${Math.round(seconds)} s`;
  }
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(moment: string | null | undefined): string {
  if (!moment) {
    return "never";
  }
  const seconds = (now() - Date.parse(moment)) / 1000;
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

/** A time of the last hour, in seconds since 1970, in the browser's zone. */
export const clock = (at: number) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

/** A moment of a log, to the microsecond and in UTC, as the source has it. */
export const moment = (found: string) => found.replace("T", " ").replace(/(\+00:00|Z)$/, " UTC");

const zone = (moment: Date, name?: string) =>
  moment.toLocaleString([], { dateStyle: "medium", timeStyle: "long", ...(name ? { timeZone: name } : {}) });

/** A moment in the browser's zone and in UTC, as a title says it. */
export function bothZones(at: string): string {
  const moment = new Date(at);
  return Number.isNaN(moment.getTime()) ? at : `${zone(moment)} (${zone(moment, "UTC")})`;
}

/** A sentence of the API's, which begins with a small letter and has no full stop. */
export const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

export const count = (n: number) => n.toLocaleString("en");

/** Events per second. */
export const rate = (n: number) => `${n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 1 : 0 })} events/s`;

export function bytes(n: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let size = n;
  let unit = 0;
  while (size >= (unit ? 999.5 : 1000) && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit ? size.toPrecision(3) : size} ${units[unit]}`;
}

/** Fields that say where a position is, of each kind of source; the first two are enough to compare positions. */
const FIRST_FIELDS = ["file", "pos", "scn", "read_scn", "commit_lsn", "published_us", "sec", "ord", "line", "offset"];

type Fields = Record<string, unknown> | null | undefined;

const written = (parts: [string, unknown][]) => parts.map(([name, v]) => `${name} ${value(v)}`).join(", ") || "none";
const filled = (found: Fields) => Object.entries(found ?? {}).filter(([, v]) => v !== "" && v !== null && v !== undefined);

/** A position in words: its plain fields, or all of them. */
export const position = (found: Fields, all = false) => written(filled(found).filter(([, v]) => all || typeof v !== "object"));

/** A position by two fields, and how many others it has. */
export function shortPosition(found: Fields): [string, number] {
  const parts = filled(found);
  const known = FIRST_FIELDS.flatMap((name) => parts.filter(([field]) => field === name));
  const first = [...known, ...parts.filter(([field, v]) => typeof v !== "object" && !FIRST_FIELDS.includes(field))].slice(0, 2);
  return [written(first.length ? first : parts.slice(0, 1)), parts.length - (first.length || Math.min(parts.length, 1))];
}

export function value(found: unknown): string {
  if (found === null || found === undefined) {
    return "";
  }
  return typeof found === "string" ? found : JSON.stringify(found);
}
