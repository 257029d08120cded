import { Alert, Badge, Box, Heading, HStack, Spinner, Table, Text } from "@chakra-ui/react";
import { useEffect, useState, type ReactNode } from "react";

import { Refused, type Line } from "./api";
import { Long, shortened } from "./long";
import { ProblemBox } from "./ProblemBox";
import { ago, bytes, duration, now } from "./texts";
import type { Asked } from "./useAsked";

export const ROOT = "/plugin/cdc";

/** When something was looked at that does not look again by itself. */
export function LookedAt({ at }: { at: Date | undefined }) {
  return at ? <Text color="fg.muted" mt={1}>As of {at.toLocaleString()}.</Text> : null;
}

const COLOURS: Record<string, string> = { running: "green", failed: "red", paused: "orange", stopped: "gray", done: "green", refused: "red" };

/** Between two runs a connector is "unassigned" for programs. */
export const stateWord = (word: string) => (word === "unassigned" ? "idle" : word);

export function State({ word }: { word: string }) {
  return (
    <Badge colorPalette={COLOURS[word] ?? "gray"} variant="surface">
      {shortened(stateWord(word), 40)}
    </Badge>
  );
}

const TROUBLE = ["OK", "inactive", "late", "needs attention"];

export function Trouble({ line }: { line: Line }) {
  const colour = ["green", "gray", "orange", "red"][line.trouble] ?? "gray";
  return (
    <Badge colorPalette={colour} variant="surface">
      {TROUBLE[line.trouble]}
    </Badge>
  );
}

/** Why a request to the API failed. */
export function Failure({ error }: { error: Error }) {
  const parts = error instanceof Refused ? error.problem.error : null;
  return (
    <Box role="alert">
      <ProblemBox tone="bad" cause={parts ?? { message: error.message }} testId="failure" />
    </Box>
  );
}

const LATE_S = 10;

/** That an answer is awaited: a text, as a spinner alone says nothing to a screen reader. */
export function Loading() {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setLate(true), LATE_S * 1000);
    return () => window.clearTimeout(timer);
  }, []);
  return (
    <HStack role="status" color="fg.muted" my={2}>
      <Spinner size="sm" aria-hidden="true" />
      <Text>{late ? `Loading: no answer for ${LATE_S} seconds` : "Loading"}</Text>
    </HStack>
  );
}

/** What was asked: the answer, why there is none, or that it is awaited. */
export function Shown<T>({
  asked,
  children,
}: {
  asked: Asked<T>;
  children: (data: T) => ReactNode;
}) {
  return (
    <>
      {asked.error ? <Failure error={asked.error} /> : null}
      {asked.late && asked.data !== undefined ? (
        <Alert.Root status="warning" data-testid="late">
          <Alert.Indicator />
          <Alert.Title>{`The API has not answered since ${asked.late.toLocaleTimeString()}: the page shows older data.`}</Alert.Title>
        </Alert.Root>
      ) : null}
      {asked.data !== undefined ? children(asked.data) : asked.error ? null : <Loading />}
    </>
  );
}

export function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Box as="section" mt={5}>
      <Heading as="h2" size="md" mb={2}>
        {shortened(title, 300)}
      </Heading>
      {children}
    </Box>
  );
}

/** A table with titles; it scrolls by itself where it is wider than the page. */
export function Grid({
  label,
  head,
  rows,
  nothing,
}: {
  label: string;
  head: string[];
  rows: { key: string; cells: ReactNode[] }[];
  nothing: string;
}) {
  if (rows.length === 0) {
    return <Text color="fg.muted">{nothing}</Text>;
  }
  return (
    <Table.ScrollArea tabIndex={0} role="region" aria-label={label}>
      <Table.Root size="sm" aria-label={label}>
        <Table.Header>
          <Table.Row>
            {head.map((title) => (
              <Table.ColumnHeader key={title}>{title}</Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {rows.map(({ key, cells }) => (
            <Table.Row key={key}>
              {cells.map((cell, n) => (
                <Table.Cell key={n} verticalAlign="top" minW="6.5rem" maxW="40rem" whiteSpace="normal" unicodeBidi="isolate">
                  {typeof cell === "string" ? <Long text={cell} /> : cell}
                </Table.Cell>
              ))}
            </Table.Row>
          ))}
        </Table.Body>
      </Table.Root>
    </Table.ScrollArea>
  );
}

/** When the lag of a connector was measured. */
export function lagAt(line: Line): string {
  const { lag_at: at } = line;
  return !at || now() - Date.parse(at) < 60_000 ? "now" : ago(at);
}

/** How far a connector is from both ends of its source's log, where the source tells. */
export function LogEnds({ line }: { line: Line }) {
  const { lag_bytes: behind, log_gone_at: gone } = line;
  if (!behind && !gone) {
    return null;
  }
  return (
    <Text color="fg.muted" fontSize="xs">
      {behind ? `${bytes(behind)} of the source's log left to read` : ""}
      {gone ? `${behind ? "; " : ""}the source removes the log at the position ${ago(gone)}` : ""}
    </Text>
  );
}
