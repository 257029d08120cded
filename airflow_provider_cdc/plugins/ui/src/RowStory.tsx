import { Badge, Box, Button, Checkbox, Code, Field, HStack, Input, Text } from "@chakra-ui/react";
import { useState, type FormEvent } from "react";

import { ask, type Change, type Story } from "./api";
import { Failure, Grid, Section } from "./bits";
import { ago, position, value } from "./texts";

/** Every change of one row, and what it is now. Each look is recorded. */
export function RowStory({ path }: { path: string }) {
  const [table, setTable] = useState("");
  const [key, setKey] = useState("");
  const [compare, setCompare] = useState(false);
  const [busy, setBusy] = useState(false);
  const [found, setFound] = useState<{ story?: Story; error?: Error }>({});
  const look = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      const keys = key.trim().startsWith("{") ? [key.trim()] : key.split(",").map((one) => one.trim());
      setFound({ story: await ask<Story>(`${path}/row`, undefined, { table, key: keys, compare }) });
    } catch (e) {
      setFound({ error: e as Error });
    }
    setBusy(false);
  };
  const { story, error } = found;
  return (
    <>
      <form onSubmit={(event) => void look(event)}>
        <HStack gap={3} my={2} flexWrap="wrap" alignItems="end">
          <Field.Root w="18rem">
            <Field.Label>Table</Field.Label>
            <Input value={table} onChange={(e) => setTable(e.target.value)} required />
          </Field.Root>
          <Field.Root w="18rem">
            <Field.Label>Key: values with commas between, or JSON</Field.Label>
            <Input value={key} onChange={(e) => setKey(e.target.value)} required />
          </Field.Root>
          <Checkbox.Root checked={compare} onCheckedChange={(e) => setCompare(e.checked === true)}>
            <Checkbox.HiddenInput />
            <Checkbox.Control />
            <Checkbox.Label>Compare with the source</Checkbox.Label>
          </Checkbox.Root>
          <Button type="submit" loading={busy}>
            Look
          </Button>
        </HStack>
      </form>
      <Text color="fg.muted">Each look is recorded: who, when, which row.</Text>
      {error ? <Failure error={error} /> : null}
      {story ? <Told story={story} /> : null}
    </>
  );
}

function Told({ story }: { story: Story }) {
  return (
    <Box data-testid="story">
      <Section title={`${story.table} ${value(story.key)}`}>
        <Text>{story.row.state === "unknown" ? "What it is, the change log that is kept does not tell." : story.row.row ? "The row now:" : "There is no such row."}</Text>
        {story.row.row ? <Code whiteSpace="pre-wrap">{JSON.stringify(story.row.row, null, 1)}</Code> : null}
        {(story.notes ?? []).map((note) => (
          <Text key={note}>{note}</Text>
        ))}
        <Text color="fg.muted">
          Batches {story.first_batch} to {story.last_batch} were looked at.
        </Text>
        {(story.left_out ?? []).length > 0 ? <Text fontWeight="semibold">There was no time for all batches: look again, which goes on from here.</Text> : null}
      </Section>
      {(story.changes ?? []).map((change, n) => (
        <OneChange key={`${change.seq} ${n}`} change={change} />
      ))}
    </Box>
  );
}

function OneChange({ change }: { change: Change }) {
  const images = change.before || change.after;
  const image = (found: Record<string, unknown> | null | undefined, name: string, lacking: string[] | undefined) =>
    !found ? "" : lacking?.includes(name) ? "(not in the log)" : name in found ? <Code key={name}>{found[name] === null ? "NULL" : value(found[name])}</Code> : "(left out)";
  return (
    <Section title={`${change.operation}, ${change.committed_at ?? "at a time that is not known"}`}>
      {images ? (
        <Grid
          label={`Change ${change.seq}`}
          head={["Column", "Before", "After", "Changed"]}
          nothing=""
          rows={(change.columns ?? []).map((name) => ({
            key: name,
            cells: [name, image(change.before, name, change.unavailable_before), image(change.after, name, change.unavailable), (change.changed ?? []).includes(name) ? <Badge key="changed" colorPalette="orange">changed</Badge> : ""],
          }))}
        />
      ) : null}
      {change.statement ? <Code>{change.statement}</Code> : null}
      <Text color="fg.muted">
        {position(change.position)}; seq {change.seq}, batch {change.batch}
        {change.captured_at ? `; captured ${ago(change.captured_at)}` : ""}
        {(change.applied ?? []).map((one) => `; ${one.target}: ${one.state}${one.at ? ` ${ago(one.at)}` : ""}`)}
      </Text>
    </Section>
  );
}
