import { Button, Code, Text } from "@chakra-ui/react";
import { useState } from "react";

import { count } from "./texts";

const MOST = 300;

/** Characters that turn the direction of what follows, in sight: a name that has one would turn the sentence that it is in. */
const plain = (text: string) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (one) => `\\u${one.charCodeAt(0).toString(16)}`);

/** The beginning of a text that has no room, such as in a choice or on a button. */
export const shortened = (text: string, most: number) => plain(text.length <= most ? text : `${text.slice(0, most).replace(/[\uD800-\uDBFF]$/, "")}…`);

/** A text that may be of any length and direction: of a long one the beginning, and all of it for who wants it. */
export function Long({ text, most = MOST }: { text: string; most?: number }) {
  const [all, setAll] = useState(false);
  if (text.length <= most) {
    return <bdi>{plain(text)}</bdi>;
  }
  return (
    <>
      <bdi>{all ? plain(text) : shortened(text, most)}</bdi> <ShowAll all={all} length={text.length} onChange={setAll} />
    </>
  );
}

/** Shows all of a text, or its beginning again. */
function ShowAll({ all, length, onChange }: { all: boolean; length: number; onChange: (all: boolean) => void }) {
  return (
    <Button size="2xs" variant="outline" maxW="full" whiteSpace="normal" h="auto" minH={6} aria-expanded={all} onClick={() => onChange(!all)}>
      {all ? "Show less" : `Show all ${count(length)} characters`}
    </Button>
  );
}

/** Something to be read letter by letter, such as a position or a name. */
export function Exact({ text, most }: { text: string; most?: number }) {
  return (
    <Code display="inline" whiteSpace="pre-wrap" boxDecorationBreak="clone">
      <Long text={text} most={most} />
    </Code>
  );
}

/** As a shell reads it: what is in quotes may have backticks of its own. */
const WORDS = `airflow (?:'[^']*'|"[^"]*"|[^\`'"])*`;
const COMMAND = new RegExp(`^${WORDS}$`);
const BETWEEN = new RegExp(`\`(${WORDS}|[^\`]*)\``);

/** The command of a repair, where there is one, and otherwise all of it: the page of the connector has it whole. */
export const commandIn = (text: string) => new RegExp(`\`((?=airflow cdc )${WORDS})\``).exec(text)?.[1] ?? text;

/** What to do about an error: commands in it are set apart, whether they are all of it or stand between backticks. */
export function Repair({ text }: { text: string }) {
  const [all, setAll] = useState(false);
  if (COMMAND.test(text)) {
    return <Exact text={text} />;
  }
  const long = text.length > MOST;
  return (
    <Text as="span">
      {(long && !all ? shortened(text, MOST) : text).split(BETWEEN).map((piece, n) => (n % 2 ? <Exact key={n} text={piece} /> : <bdi key={n}>{plain(piece)}</bdi>))}
      {long ? <> <ShowAll all={all} length={text.length} onChange={setAll} /></> : null}
    </Text>
  );
}
