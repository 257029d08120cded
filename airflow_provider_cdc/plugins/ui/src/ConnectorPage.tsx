import { Badge, Box, Heading, HStack, Link as Anchor, Tabs, Text } from "@chakra-ui/react";
import { useRef, useState, type ReactNode } from "react";
import { Link, useParams } from "react-router-dom";

import { ActionDialog } from "./ActionDialog";
import { ActionButtons } from "./Actions";
import { part, type AskedFor, type Detail } from "./api";
import { AskedForList, LastAsked } from "./AskedFor";
import { Failure, ROOT, Section, Shown, State, Trouble } from "./bits";
import { Cards } from "./Cards";
import { Charts } from "./Charts";
import { CheckTab } from "./CheckTab";
import { choicesOf, isUsual, offsetChoicesOf, type Choice } from "./choices";
import { flowOf, headline, nextRun, number } from "./flow";
import { GapReport } from "./GapReport";
import { Long } from "./long";
import { TABS } from "./places";
import { AlertBox, ProblemBox } from "./ProblemBox";
import { RowStory } from "./RowStory";
import { Sign } from "./signs";
import { BatchesTab, ConfigurationTab, EventsTab, OffsetsTab, SchemaTab, SignalsTab, TablesTab } from "./tabs";
import { count } from "./texts";
import { useAsked } from "./useAsked";
import { Way } from "./Way";

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
  const choose = (choice: Choice, by = document.activeElement as HTMLElement | null) => setOpen({ choice, targets: asked.data?.targets ?? [], by });
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
      <HStack gap={3} my={2} flexWrap="wrap">
        <Heading as="h1" size="xl" overflowWrap="anywhere" ref={title} tabIndex={-1}>
          <Long text={connector} />
        </Heading>
        {asked.data ? (
          <>
            <State word={asked.data.line.state} />
            <Trouble line={asked.data.line} />
          </>
        ) : null}
      </HStack>
      <Shown asked={asked}>
        {(found) => (
          <>
            <Facts found={found} actions={<ActionButtons choices={choicesOf(found).filter(isUsual)} seldom={choicesOf(found).filter((one) => !isUsual(one))} onChoose={choose} />} />
            <LastAsked asked={actions} />
            <Tabs.Root lazyMount unmountOnExit value={tabsOf(found).some(([name]) => name === tab) ? tab : "charts"} onValueChange={({ value }) => turnTo(value)} mt={4}>
              <Tabs.List flexWrap="wrap" aria-label="Connector details">
                {tabsOf(found).map(([name, title]) => (
                  <Tabs.Trigger key={name} value={name}>
                    {title}
                    <Count of={countsOf(found)[name]} />
                  </Tabs.Trigger>
                ))}
              </Tabs.List>
              <Tabs.Content value="charts"><Charts path={path} names={namesOf(found)} /></Tabs.Content>
              <Tabs.Content value="tables"><TablesTab path={path} names={namesOf(found)} /></Tabs.Content>
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

/** Producer of metrics → the target that it applies to. */
const namesOf = ({ targets }: Detail) => Object.fromEntries(targets.map(({ producer, name }) => [producer, `apply to ${name}`]));

/** How many entries tabs have, where the page knows it. */
function countsOf({ line, status }: Detail): Record<string, number | undefined> {
  const metrics = (status.metrics ?? {}) as Record<string, { CapturedTables?: unknown } | undefined>;
  const tables = metrics.streaming?.CapturedTables ?? metrics.snapshot?.CapturedTables;
  const signals = status.signals as unknown;
  return {
    tables: Array.isArray(tables) ? tables.length : undefined,
    signals: Array.isArray(signals) && signals.length ? signals.length : undefined,
    batches: line.batch || undefined,
  };
}

function Count({ of }: { of: number | undefined }) {
  return of === undefined ? null : (
    <Badge size="xs" variant="subtle" aria-hidden="true">
      {count(of)}
    </Badge>
  );
}

/** Where the connector stands: a headline, what is wrong, the picture of the way, and the four cards. */
function Facts({ found, actions }: { found: Detail; actions: ReactNode }) {
  const { line } = found;
  const flow = flowOf(found);
  const { tone, text } = headline(found, flow);
  return (
    <Box>
      <HStack gap={3} justify="space-between" alignItems="flex-start" flexWrap="wrap">
        <HStack gap={2} flex="1 1 20rem" minW={0} alignItems="flex-start" data-testid="headline">
          <Sign tone={tone} />
          <Text fontWeight="semibold"><Long text={text} /></Text>
        </HStack>
        {actions}
      </HStack>
      <Problems found={found} />
      <Way found={found} flow={flow} />
      {found.work.map((work) => (
        <Text key={String(work.text)} my={1}>At work: <Long text={String(work.text)} /></Text>
      ))}
      <Cards line={line} next={nextRun(found)} left={found.targets.reduce((sum, { failed }) => sum + Object.keys(failed).length, 0)} />
    </Box>
  );
}

/** A box for each alert; tables that an apply could not update are in the box of its target. */
function Problems({ found }: { found: Detail }) {
  const { line, targets } = found;
  const alerts = line.alerts ?? [];
  const left = (name: string) => targets.filter((target) => target.name === name).map((target) => <FailedTables key={target.location} failed={target.failed} />);
  const others = targets.filter(({ name, failed }) => Object.keys(failed).length > 0 && !alerts.some((alert) => alert.kind === "TablesLeftBehind" && alert.target === name));
  return (
    <>
      {found.trouble ? <Failure error={new Error(`The API server cannot read the change log: ${found.trouble}`)} /> : null}
      {alerts.map((alert) => (
        <AlertBox key={alert.sentence} alert={alert} tone={line.trouble > 2 ? "bad" : "late"}>
          {alert.kind === "TablesLeftBehind" ? left(alert.target ?? "") : null}
        </AlertBox>
      ))}
      {others.map((target) => (
        <ProblemBox key={target.location} tone="bad" what={<>The last apply to <Long text={target.name} /> could not update {number(Object.keys(target.failed).length, "table")}.</>} testId="alert">
          <FailedTables failed={target.failed} />
        </ProblemBox>
      ))}
    </>
  );
}

function FailedTables({ failed }: { failed: Detail["targets"][number]["failed"] }) {
  return Object.entries(failed).map(([table, why]) => (
    <Text key={table} whiteSpace="pre-wrap">Table <Long text={table} />: <Long text={String(why)} /></Text>
  ));
}
