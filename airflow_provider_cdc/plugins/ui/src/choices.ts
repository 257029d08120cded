// What can be asked for, and what each dialog has to ask first.
import type { Detail } from "./api";

export interface Choice {
  action: string;
  title: string;
  body: Record<string, unknown>;
  /** Tables are to be named, or may be. */
  tables?: "named" | "any";
  /** How they are read, and whether they are emptied first. */
  reads?: boolean;
  /** A target is to be chosen. */
  target?: boolean;
  /** An earlier offset is to be chosen. */
  version?: boolean;
  /** A position is to be written; this is the present one. */
  position?: Record<string, unknown> | null;
  /** The offset moves: nothing is done if it has moved since the plan. */
  moves?: boolean;
  /** It needs the right to administer, as something can be lost. */
  administers?: boolean;
}

const TITLES: Record<string, string> = {
  pause: "Pause",
  stop: "Stop",
  resume: "Resume",
  run: "Run now",
  snapshot: "Snapshot tables",
  "stop-snapshot": "Stop snapshots",
  verify: "Verify tables",
  repair: "Verify and repair",
  rebuild: "Rebuild tables",
  "restore-offset": "Restore an earlier offset",
  "set-offset": "Set the offset",
  "reset-offset": "Reset the offset",
  "repair-gap": "Repair the gap",
  "forget-target": "Forget a target",
};

export const titleOf = (action: string) => TITLES[action] ?? action;

const choice = (action: string, more: Partial<Choice> = {}): Choice => ({ action, title: titleOf(action), body: {}, ...more });

/** About the connector as a whole, and its tables. */
export function choicesOf(found: Detail): Choice[] {
  const halted = found.line.state === "paused" || found.line.state === "stopped";
  const applied = found.targets.length > 0;
  const operate = [
    ...(halted ? [choice("resume")] : [choice("pause"), choice("stop")]),
    ...(found.line.dag ? [choice("run")] : []),
    choice("snapshot", { tables: "named", reads: true }),
    choice("stop-snapshot", { tables: "any" }),
    ...(applied ? [choice("verify", { tables: "any", target: true }), choice("repair", { tables: "any", target: true })] : []),
  ];
  const administer = [
    ...(applied ? [choice("rebuild", { tables: "named", target: true, administers: true })] : []),
    ...found.targets.map(({ name, target, location }) => choice("forget-target", { title: `Forget ${name}`, body: { target, location }, administers: true })),
  ];
  return [...(found.rights.includes("operate") ? operate : []), ...(found.rights.includes("administer") ? administer : [])];
}

const USUAL = ["pause", "resume", "run", "snapshot"];

/** The actions that have a button of their own; the others are in the menu. */
export const isUsual = ({ action }: Choice) => USUAL.includes(action);

/** About the offset. */
export function offsetChoicesOf(found: Detail): Choice[] {
  if (!found.rights.includes("administer")) {
    return [];
  }
  return [
    choice("restore-offset", { version: true, moves: true }),
    choice("set-offset", { position: (found.line.position as Record<string, unknown> | null) ?? null, moves: true }),
    choice("reset-offset", { moves: true }),
  ];
}

/** A way out of a gap. */
export const repairOf = (repair: string): Choice => choice("repair-gap", { title: `${titleOf("repair-gap")} by ${repair}`, body: { repair }, moves: true });
