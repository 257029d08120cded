import { Badge, Text } from "@chakra-ui/react";

import type { Story } from "./api";
import { Grid, Section } from "./bits";
import { Exact, Long, shortened } from "./long";
import { count, moment, value } from "./texts";

type Row = Record<string, unknown>;

interface Holder {
  title: string;
  row: Row | null;
  /** In place of a value that is not known. */
  lacking: string[];
  /** What there is to say besides its values. */
  says: string;
}

const EQUAL = new Map([[true, "equal to the newest change"], [false, "not equal to the newest change"], [null, "cannot be compared with the newest change"]]);

const STATES: Record<string, string> = { row: "", "no row": "the row does not exist", "not looked at": "not read" };

function holders(story: Story): Holder[] {
  const { row, source } = story;
  const says = row.state === "unknown" ? "the retained change log does not show whether the row exists" : row.row ? "" : "the row does not exist";
  return [
    { title: "Change log", row: row.row ?? null, lacking: row.unavailable ?? [], says },
    ...(story.targets ?? []).map((one) => ({
      title: `${one.target} ${one.table ?? one.location}`,
      row: one.row ?? null,
      lacking: [],
      says: [
        STATES[one.state] ?? one.state,
        one.mode && one.mode !== "current" ? `mode ${one.mode}` : "",
        one.versions ? `${count(one.versions)} rows with this key` : "",
        one.batch ? `as of batch ${count(one.batch)}` : "",
        one.why ?? "",
      ].filter(Boolean).join(", "),
    })),
    ...(source ? [{ title: "Source", row: source.row, lacking: [], says: [source.row ? "" : "the row does not exist", EQUAL.get(source.equal) ?? "", source.position ? `at log position ${source.position}` : ""].filter(Boolean).join(", ") }] : []),
  ];
}

/** What the row is, or was: by the change log, at each target, at the source, side by side. */
export function RowNow({ story }: { story: Story }) {
  const all = holders(story);
  const withRow = all.filter(({ row }) => row !== null);
  const columns = [...new Set(withRow.flatMap(({ row }) => Object.keys(row ?? {})))];
  const differs = new Set(story.source?.different ?? []);
  const cell = ({ row, lacking }: Holder, name: string) =>
    lacking.includes(name) ? "(not known)" : row && name in row ? <Exact text={row[name] === null ? "NULL" : value(row[name])} /> : "";
  const when = story.as_of ? `as of ${moment(story.as_of)}` : "now";
  return (
    <Section title={`${shortened(`${story.table} ${value(story.key)}`, 200)}, ${when}`}>
      {all.filter(({ says }) => says).map(({ title, says }) => (
        <Text key={title}>
          <Long text={title} />: <Long text={says} />
        </Text>
      ))}
      {columns.length > 0 ? (
        <Grid
          label="The row"
          head={["Column", ...withRow.map(({ title }) => shortened(title, 80)), ...(differs.size ? ["Differs"] : [])]}
          nothing=""
          rows={columns.map((name) => ({
            key: name,
            cells: [name, ...withRow.map((one) => cell(one, name)), ...(differs.size ? [differs.has(name) ? <Badge key="differs" colorPalette="red">differs</Badge> : ""] : [])],
          }))}
        />
      ) : null}
    </Section>
  );
}
