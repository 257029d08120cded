import { Box, Heading, HStack, Link as Anchor, Tabs, Text } from "@chakra-ui/react";
import { useRef, useState } from "react";
import { Link, useParams } from "react-router-dom";

import { ActionDialog } from "./ActionDialog";
import { ActionButtons } from "./Actions";
import { part, type AskedFor, type Detail, type Line } from "./api";
import { AskedForList, LastAsked } from "./AskedFor";
import { ErrorName, Failure, lag, LogEnds, Parts, ROOT, Section, Shown, State, Trouble } from "./bits";
import { Charts } from "./Charts";
import { CheckTab } from "./CheckTab";
import { choicesOf, offsetChoicesOf, type Choice } from "./choices";
import { GapReport } from "./GapReport";
import { Exact, Long } from "./long";
import { TABS } from "./places";
import { RowStory } from "./RowStory";
import { BatchesTab, ConfigurationTab, EventsTab, OffsetsTab, SchemaTab, SignalsTab, TablesTab } from "./tabs";
import { ago, count, duration, position } from "./texts";
import { useAsked } from "./useAsked";

/** One connector from all sides. */
export function ConnectorPage() {
  const { connector = "", tab: first = "charts" } = useParams();
  const [tab, setTab] = useState(first);
  const title = useRef<HTMLHeadingElement>(null);
  const path = `connectors/${part(connector)}`;
  const turnTo = (name: string) => {
    setTab(name);
    // not by the router: Airflow makes a plugin's page anew for each path, so that it would lose the focus, and blink
    history.replaceState(history.state, "", new URL(`plugin/cdc/${path}/${name}`, document.baseURI));
  };
  const asked = useAsked<Detail>(path, 5);
  const actions = useAsked<AskedFor[]>(`${path}/actions`, 5);
  // a dialog is as it was opened, whatever the page learns meanwhile: what its button stood for may be gone
  const [open, setOpen] = useState<{ choice: Choice; targets: Detail["targets"]; by: HTMLElement | null } | undefined>(undefined);
  const choose = (choice: Choice) => setOpen({ choice, targets: asked.data?.targets ?? [], by: document.activeElement as HTMLElement | null });
  const close = () => {
    setOpen(undefined);
    const back = open?.by?.isConnected ? open.by : title.current;
    window.setTimeout(() => back?.focus(), 0);
  };
  const done = () => {
    asked.again();
    actions.again();
  };
  return (
    <>
      <Anchor asChild variant="underline">
        <Link to={ROOT}>CDC connectors</Link>
      </Anchor>
      <Heading as="h1" size="xl" my={2} overflowWrap="anywhere" ref={title} tabIndex={-1}>
        <Long text={connector} />
      </Heading>
      <Shown asked={asked}>
        {(found) => (
          <>
            <Facts found={found} />
            <ActionButtons choices={choicesOf(found)} onChoose={choose} />
            <LastAsked asked={actions} />
            <Tabs.Root lazyMount unmountOnExit value={tabsOf(found).some(([name]) => name === tab) ? tab : "charts"} onValueChange={({ value }) => turnTo(value)} mt={4}>
              <Tabs.List flexWrap="wrap" aria-label="Connector details">
                {tabsOf(found).map(([name, title]) => (
                  <Tabs.Trigger key={name} value={name}>
                    {title}
                  </Tabs.Trigger>
                ))}
              </Tabs.List>
              <Tabs.Content value="charts"><Charts path={path} /></Tabs.Content>
              <Tabs.Content value="tables"><TablesTab path={path} /></Tabs.Content>
              <Tabs.Content value="signals"><SignalsTab path={path} /></Tabs.Content>
              <Tabs.Content value="schema"><SchemaTab path={path} /></Tabs.Content>
              <Tabs.Content value="batches"><BatchesTab path={path} targets={found.targets} /></Tabs.Content>
              <Tabs.Content value="offsets">
                <GapReport path={path} found={found} onChoose={choose} />
                <Section title="Offset history">
                  <ActionButtons choices={offsetChoicesOf(found)} onChoose={choose} />
                  <Box mt={3}><OffsetsTab path={path} /></Box>
                </Section>
              </Tabs.Content>
              <Tabs.Content value="check"><CheckTab path={path} allowed={found.rights.includes("operate")} /></Tabs.Content>
              <Tabs.Content value="configuration"><ConfigurationTab path={path} /></Tabs.Content>
              <Tabs.Content value="events">
                <AskedForList path={path} />
                <Section title="Notifications"><EventsTab path={path} /></Section>
              </Tabs.Content>
              <Tabs.Content value="row"><RowStory path={path} targets={found.targets} /></Tabs.Content>
            </Tabs.Root>
          </>
        )}
      </Shown>
      {open ? <ActionDialog connector={connector} chosen={open.choice} targets={open.targets} onClose={close} onDone={done} /> : null}
    </>
  );
}

/** Those that somebody may see. */
const tabsOf = (found: Detail) => Object.entries(TABS).filter(([name]) => name !== "row" || found.rights.includes("rows"));

/** The box of the error says it in all its parts. */
function saysTheError(problem: string, line: Line): boolean {
  const message = line.error?.message.split("\n")[0]?.replace(/\.+$/, "");
  return !!message && problem.endsWith(message);
}

function Facts({ found }: { found: Detail }) {
  const { line } = found;
  return (
    <Box>
      <HStack gap={2} flexWrap="wrap">
        <State word={line.state} />
        <Trouble line={line} />
        <Text><Long text={line.phase} /></Text>
        {line.state_since ? <Text color="fg.muted">since {ago(line.state_since)}</Text> : null}
      </HStack>
      {(line.problems ?? []).filter((problem) => !saysTheError(problem, line)).map((problem) => (
        <Text key={problem} fontWeight="semibold">
          <Long text={problem} />
        </Text>
      ))}
      {line.error ? (
        <Box my={2} p={3} borderWidth="1px" borderRadius="md" data-testid="last-error">
          <Text color="red.fg">The last run failed{line.error.at ? ` ${ago(line.error.at)}` : ""}:</Text>
          <Text fontWeight="semibold" whiteSpace="pre-wrap">{line.error.name ? <><ErrorName error={line.error} />: </> : null}<Long text={line.error.message} /></Text>
          <Parts parts={line.error} />
        </Box>
      ) : null}
      {found.trouble ? <Failure error={new Error(`The API server cannot read the change log: ${found.trouble}`)} /> : null}
      {found.work.map((work) => (
        <Text key={String(work.text)}>At work: <Long text={String(work.text)} /></Text>
      ))}
      <Text mt={1}>
        Source <Long text={line.source ?? "not known"} />; position <Exact text={position(line.position)} />; batch {count(line.batch)}; offset moved {ago(line.moved_at)}; lag {lag(line)}
        {line.freshness ? <>; freshness of the {line.freshness.where} {duration(line.freshness.p50_s)} (p50), {duration(line.freshness.p95_s)} (p95), worst: <Long text={line.freshness.worst_topic} />, {duration(line.freshness.worst_s)}</> : ""}
      </Text>
      <LogEnds line={line} />
      {found.targets.map((target) => (
        <Text key={`${target.target} ${target.location}`}>
          Target <Long text={target.target} /> at <Exact text={target.location} />: applied up to batch {count(target.last_batch)} of {count(line.batch)}
          {Object.entries(target.failed).map(([table, why]) => (
            <Text as="span" key={table} display="block" color="red.fg">
              <Long text={table} />: <Long text={String(why)} />
            </Text>
          ))}
        </Text>
      ))}
    </Box>
  );
}
