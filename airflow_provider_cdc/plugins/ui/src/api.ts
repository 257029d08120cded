// Requests to our API, with the session that Airflow's UI has. Types come from the OpenAPI document.
import type { components } from "./api-types";
import { learnTime } from "./texts";

type Schemas = components["schemas"];
export type Overview = Schemas["OverviewAnswer"];
export type Line = Schemas["ConnectorSummary"];
export type Alert = Schemas["ConnectorAlert"];
export type Detail = Schemas["ConnectorDetail"];
export type AskedFor = Schemas["RequestedAction"];
export type Plan = Schemas["ActionPlan"];
export type Story = Schemas["RowHistory"];
export type KeyColumn = Schemas["KeyColumn"];
export type Change = Schemas["RowChange"];
export type Tables = Schemas["TablesAnswer"];
export type Signal = Schemas["SignalAnswer"];
export type Event = Schemas["NotificationAnswer"];
export type Batch = Schemas["BatchAnswer"];
export type BatchDetail = Schemas["BatchDetail"];
export type Offset = Schemas["OffsetAnswer"];
export type SchemaChange = Schemas["SchemaChangeAnswer"];
export type Configuration = Schemas["ConfigurationAnswer"];
export type CheckAnswer = Schemas["CheckAnswer"];
export type GapAnswer = Schemas["GapAnswer"];
export type ChartsOf = Schemas["ConnectorCharts"];
export type Offers = Schemas["WizardOptions"];
export type SourceAnswer = Schemas["SourceAnswer"];
export type WrittenDefinition = Schemas["WrittenDefinition"];
export type Problem = Schemas["ProblemAnswer"];

export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.detail);
  }
}

const url = (path: string) => new URL(`cdc/api/v1/${path}`, document.baseURI).href;

export const part = (text: string) => encodeURIComponent(text);

export async function ask<T>(path: string, signal?: AbortSignal, body?: unknown): Promise<T> {
  const answer = await reached(url(path), {
    signal,
    credentials: "same-origin",
    ...(body === undefined
      ? {}
      : { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
  });
  learnTime(answer.headers.get("date"));
  if (answer.status === 401) {
    const next = encodeURIComponent(location.href);
    location.assign(new URL(`api/v2/auth/login?next=${next}`, document.baseURI).href);
  }
  if (!answer.ok) {
    throw new Refused(answer.status, await problemOf(answer));
  }
  return exactly(await answer.text()) as T;
}

/** A text or a number of JSON, whole: digits behind a point are no number of their own. */
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const LONG = /^-?\d{16,}$/;

/** What a text of JSON says. A whole number that is too large to be a number here becomes a text, with all its digits. */
export const exactly = (text: string): unknown =>
  JSON.parse(/\d{16}/.test(text) ? text.replace(TOKENS, (found) => (LONG.test(found) && !Number.isSafeInteger(Number(found)) ? `"${found}"` : found)) : text);

/** A browser says no more than that it could not fetch something. */
async function reached(address: string, request: RequestInit): Promise<Response> {
  try {
    return await fetch(address, request);
  } catch (e) {
    if (request.signal?.aborted) {
      throw e;
    }
    throw new Error("Airflow's API server cannot be reached. Check that it is running, and that this browser's network can reach it.");
  }
}

/** What does not fit of a request, as FastAPI has it. */
interface Unfit {
  loc: (string | number)[];
  msg: string;
}

async function problemOf(answer: Response): Promise<Problem> {
  const text = await answer.text();
  try {
    const found = JSON.parse(text) as { detail?: string | Unfit[]; error?: Problem["error"] };
    const detail = typeof found.detail === "string" ? found.detail : (found.detail ?? []).map(({ loc, msg }) => `${loc.slice(1).join(" ")}: ${msg}`).join("; ");
    return { detail: detail || text, error: found.error ?? null };
  } catch {
    return { detail: `The API server returned status ${answer.status}.`, error: null };
  }
}
