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

/** A moment of a log, to the microsecond and in UTC, as the source has it. */
export const moment = (found: string) => found.replace("T", " ").replace(/(\+00:00|Z)$/, " UTC");

export const count = (n: number) => n.toLocaleString("en");

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

export function position(found: Record<string, unknown> | null | undefined): string {
  const parts = Object.entries(found ?? {}).filter(([, v]) => v !== "" && v !== null && typeof v !== "object");
  return parts.map(([name, value]) => `${name} ${String(value)}`).join(", ") || "none";
}

export function value(found: unknown): string {
  if (found === null || found === undefined) {
    return "";
  }
  return typeof found === "string" ? found : JSON.stringify(found);
}
