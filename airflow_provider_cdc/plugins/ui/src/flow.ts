// Where the way from a source to its targets stands, step by step: what the picture, its headline and the cards are made of.
import type { Detail } from "./api";
import type { Tone } from "./signs";
import { ago, bytes, count, duration, now, sentence } from "./texts";

export interface Step {
  tone: Tone;
  /** In two or three words. */
  word: string;
  /** Facts below it, each a short line. */
  facts: string[];
}

export interface TargetStep extends Step {
  name: string;
  apply: Step;
}

export interface Flow {
  source: Step & { log: LogBar };
  capture: Step;
  changeLog: Step;
  targets: TargetStep[];
}

/** The source's log from its oldest entry to its newest one. */
export interface LogBar {
  /** Where the position is between them, 0 to 1; `undefined`: not known. */
  part: number | undefined;
  /** The log does not have it any more. */
  lost: boolean;
  oldest: string;
  newest: string;
}

const LATE_S = 600;
const HOUR_S = 3600;
const SOURCE_ERRORS = ["SourceUnavailable", "SourceBusy", "PrerequisiteError", "NotGranted", "AccessDenied", "SourceLogDamaged", "PositionLost"];
const LOG_ERRORS = ["StorageFull", "StorageUnavailable", "ChangeLogDamaged"];

const seconds = (at: string | null | undefined) => (at ? (now() - Date.parse(at)) / 1000 : undefined);

/** A number of things with its word. */
export const number = (n: number, word: string) => `${count(n)} ${word}${n === 1 ? "" : word.endsWith("ch") ? "es" : "s"}`;

export function flowOf(found: Detail): Flow {
  const flow = { source: sourceOf(found), capture: captureOf(found), changeLog: changeLogOf(found), targets: found.targets.map((target) => targetOf(found, target)) };
  return found.line.state === "failed" ? { ...flow, changeLog: idled(flow.changeLog), targets: flow.targets.map((target) => ({ ...idled(target), name: target.name, apply: idled(target.apply, "nothing new to apply") })) } : flow;
}

/** A step behind a capture that has failed: that it works is no news, as nothing reaches it. */
const idled = (step: Step, word = step.word): Step => (step.tone === "good" ? { ...step, tone: "waits", word } : step);

export const isLost = ({ line }: Detail) => (line.error?.repair ?? "").includes("airflow cdc gap");

const errorName = ({ line }: Detail) => String((line.error as { name?: string } | null | undefined)?.name ?? "");

function logOf(found: Detail): LogBar {
  const { line } = found;
  const lost = isLost(found);
  const left = line.log_gone_at ? Math.max(0, -(seconds(line.log_gone_at) ?? 0)) : undefined;
  const behind = line.lag_s ?? undefined;
  const part = lost ? undefined : left !== undefined && behind !== undefined ? left / Math.max(left + behind, 1) : behind !== undefined ? (behind > LATE_S ? 0.5 : 0.97) : undefined;
  const unread = line.lag_bytes ? `${bytes(line.lag_bytes)} not read` : behind === undefined ? "end not known" : behind > LATE_S ? "not all read" : "all read";
  return {
    part: part === undefined ? undefined : Math.min(Math.max(part, 0.03), 0.97),
    lost,
    oldest: lost ? "position removed" : left === undefined ? "oldest entry" : left > 0 ? `position kept for ${duration(left)}` : "position being removed",
    newest: unread,
  };
}

function sourceOf(found: Detail): Step & { log: LogBar } {
  const { line } = found;
  const log = logOf(found);
  const left = line.log_gone_at ? -(seconds(line.log_gone_at) ?? 0) : Infinity;
  const named = SOURCE_ERRORS.includes(errorName(found));
  if (log.lost) {
    return { tone: "bad", word: "Log lost", facts: ["The log at the position is gone."], log };
  }
  if (line.error && named) {
    return { tone: "bad", word: "Error at the source", facts: [], log };
  }
  if (left < 2 * HOUR_S) {
    return { tone: "late", word: "Log ends soon", facts: [], log };
  }
  return { tone: line.error ? "waits" : "good", word: line.error ? "Not read now" : "", facts: [], log };
}

function captureOf(found: Detail): Step {
  const { line } = found;
  const since = line.state_since ? ` ${ago(line.state_since)}` : "";
  const stopped = Object.keys((found.status.stopped ?? {}) as Record<string, string>);
  const idle = seconds(line.moved_at);
  if (line.state === "failed") {
    return { tone: "bad", word: `failed${since}`, facts: [nextRun(found)] };
  }
  if (line.state === "paused" || line.state === "stopped") {
    return { tone: "waits", word: `${line.state}${since}`, facts: [] };
  }
  if (stopped.length) {
    return { tone: "bad", word: `${number(stopped.length, "table")} stopped`, facts: [stopped.length === 1 ? String(stopped[0]) : "the others continue"] };
  }
  const stuck = line.state === "running" && idle !== undefined && idle > HOUR_S && (line.pending_tables.length > 0 || (line.lag_s ?? 0) > LATE_S);
  if (stuck) {
    return { tone: "late", word: `no commit for ${duration(idle)}`, facts: [line.snapshot ? `snapshot: ${line.snapshot.text}` : "its run holds the lease"] };
  }
  if (line.pending_tables.length) {
    return { tone: "good", word: "snapshot", facts: [line.snapshot?.text ?? `${number(line.pending_tables.length, "table")} left`] };
  }
  if ((line.lag_s ?? 0) > LATE_S) {
    return { tone: "late", word: `${duration(line.lag_s)} behind`, facts: [] };
  }
  if (line.state === "running") {
    return { tone: "good", word: "running", facts: [] };
  }
  return { tone: line.trouble >= 2 && (seconds(line.state_since) ?? 0) > HOUR_S ? "late" : "waits", word: `ended${since}`, facts: [nextRun(found)] };
}

export function nextRun({ line }: Detail): string {
  const next = line.next_run;
  if (!next) {
    return "";
  }
  return next.gone ? "its DAG is gone" : next.paused ? "its DAG is paused" : next.at ? (Date.parse(next.at) > now() ? `next run ${ago(next.at)}` : "a run is due, or waits for changes") : "next run: on an event, or manually";
}

function changeLogOf(found: Detail): Step {
  const { line } = found;
  const committed = line.batch && line.moved_at ? `last commit ${ago(line.moved_at)}${line.state === "failed" ? ", before the failure" : ""}` : "no commit yet";
  if (found.trouble) {
    return { tone: "bad", word: "Not readable", facts: [committed] };
  }
  if (line.error && LOG_ERRORS.includes(errorName(found))) {
    return { tone: "bad", word: "Error at the storage", facts: [committed] };
  }
  return { tone: line.batch ? "good" : "waits", word: line.batch ? `batch ${count(line.batch)}` : "empty", facts: [`${number(line.seq, "event")} in all`, committed] };
}

function targetOf(found: Detail, target: Detail["targets"][number]): TargetStep {
  const { line } = found;
  const batches = Math.max(line.batch - target.last_batch, 0);
  const failed = Object.keys(target.failed).length;
  const behind = seconds(target.waiting_since);
  const late = batches > 0 && behind !== undefined && behind > LATE_S;
  const at = target.ran_at ?? target.at;
  const ran = at ? `last apply ${ago(at)}` : "no apply yet";
  const waiting = batches ? `${target.waiting_events ? number(target.waiting_events, "event") : number(batches, "batch")} waiting${target.waiting_since ? ` for ${duration(behind)}` : ""}` : "nothing waiting";
  const apply: Step = target.run_failed
    ? { tone: "bad", word: `failed${at ? ` ${ago(at)}` : ""}`, facts: [] }
    : { tone: late ? "late" : batches ? "waits" : "good", word: batches ? `${number(batches, "batch")} to apply` : "up to date", facts: [] };
  return {
    name: target.name,
    tone: failed ? "bad" : late ? (target.run_failed ? "bad" : "late") : batches ? "waits" : "good",
    word: `batch ${count(target.last_batch)} of ${count(line.batch)}`,
    facts: [failed ? `${number(failed, "table")} failed` : waiting, ran].filter(Boolean),
    apply,
  };
}

function lateCapture({ line }: Detail, capture: Step): string {
  if (!capture.word.startsWith("no commit")) {
    return capture.word.endsWith("behind") ? `The capture is ${capture.word} its source${line.lag_trend ? `, and the lag ${line.lag_trend.text}` : ""}.` : `The capture is ${capture.word}.`;
  }
  return line.pending_tables.length ? `The snapshot stands still: ${capture.word}.` : `A run holds the lease and stands still, ${capture.word}: ${line.captured_by ?? "not known"}.`;
}

function logEnds({ line }: Detail): string {
  const alert = line.alerts?.find(({ kind }) => kind === "LogEnds");
  return alert ? sentence(alert.sentence) : `The source removes the log at the position ${ago(line.log_gone_at)}: changes that are not captured by then are lost.`;
}

/** The first step that is not as it should be, in a sentence. */
export function headline(found: Detail, flow: Flow): { tone: Tone; text: string } {
  const broken = (step: Step) => step.tone === "bad";
  const { line } = found;
  if (line.state === "paused" || line.state === "stopped") {
    return { tone: "waits", text: `The connector is ${line.state}: nothing is captured until a person resumes it.` };
  }
  if (flow.source.log.lost) {
    return { tone: "bad", text: "It stops at the source: the log no longer has the position." };
  }
  if (broken(flow.source)) {
    return { tone: "bad", text: "It stops at the source: the last run could not read it." };
  }
  if (broken(flow.changeLog)) {
    return { tone: "bad", text: found.trouble ? "The change log cannot be read from here." : "It stops at the change log: the last run could not write it." };
  }
  if (broken(flow.capture)) {
    return { tone: "bad", text: line.state === "failed" ? `It stops at the capture: the last run failed ${ago(line.state_since)}${errorName(found) ? ` with ${errorName(found)}` : ""}.` : `The capture leaves out ${flow.capture.word.replace(" stopped", "")}: ${flow.capture.facts[0]}.` };
  }
  const target = flow.targets.find((one) => broken(one) || broken(one.apply));
  if (target) {
    return { tone: "bad", text: `It stops at the target ${target.name}: ${broken(target.apply) && !target.facts[0]?.includes("failed") ? `the apply ${target.apply.word}` : target.facts[0]}.` };
  }
  const late = flow.source.tone === "late" ? logEnds(found) : flow.capture.tone === "late" ? lateCapture(found, flow.capture) : undefined;
  if (late) {
    return { tone: "late", text: late };
  }
  const slow = flow.targets.find((one) => one.tone === "late");
  if (slow) {
    return { tone: "late", text: `The target ${slow.name} is behind: ${slow.facts[0]}.` };
  }
  const first = line.alerts?.[0];
  if (line.trouble >= 2 && first) {
    return { tone: "late", text: sentence(first.sentence) };
  }
  if (line.pending_tables.length) {
    return { tone: "good", text: `The snapshot is running: ${line.snapshot?.text ?? `${number(line.pending_tables.length, "table")} left`}.` };
  }
  return line.state === "running" ? { tone: "good", text: "All steps are running." } : { tone: "waits", text: `Idle: the last run ended without an error${line.state_since ? ` ${ago(line.state_since)}` : ""}, and the next one continues.` };
}
