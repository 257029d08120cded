import { Box, HStack, Link as Anchor, Text } from "@chakra-ui/react";
import type { ReactNode } from "react";
import { Link } from "react-router-dom";

import type { Alert } from "./api";
import { Long, Repair, shortened } from "./long";
import { Sign, type Tone } from "./signs";
import { sentence } from "./texts";
import { When } from "./When";

/** An error in its parts, as far as they are known. */
export interface Cause {
  name?: string;
  page?: string;
  message?: string;
  where?: string;
  safe?: string;
  repair?: string;
}

const isAddress = (page: string | undefined): page is string => /^(https?:\/)?\//.test(page ?? "");

/** The name of an error, which leads to its page; nothing for one without a page. */
export function ErrorName({ error }: { error: Cause }) {
  if (!error.name) {
    return null;
  }
  return isAddress(error.page) ? (
    <Anchor href={error.page} target="_blank" rel="noreferrer" textDecoration="underline" data-testid="error-name"><bdi>{shortened(error.name, 80)}</bdi></Anchor>
  ) : (
    <Text as="span" title={error.page} data-testid="error-name"><bdi>{shortened(error.name, 80)}</bdi></Text>
  );
}

/** Something that is not as it should be: what, its error, where, what is safe, how to repair it, and the page of the documentation about it. */
export function ProblemBox({ tone, what, cause, safe = cause?.safe, check, page, testId, children }: { tone: Tone; what?: ReactNode; cause?: Cause | null; safe?: string; check?: string; page?: string; testId: string; children?: ReactNode }) {
  const { name, message, where, repair } = cause ?? {};
  return (
    <HStack my={2} p={3} gap={3} alignItems="flex-start" borderWidth="1px" borderStartWidth="4px" borderStartColor={tone === "bad" ? "red.solid" : "orange.solid"} borderRadius="md" role="group" aria-label="Problem" data-testid={testId}>
      <Sign tone={tone} />
      <Box minW={0} flex="1">
        {what ? <Text fontWeight={message ? undefined : "semibold"}>{what}</Text> : null}
        {message ? <Text fontWeight="semibold" whiteSpace="pre-wrap">{name ? <><ErrorName error={cause ?? {}} />: </> : null}<Long text={message} /></Text> : null}
        {where ? <Text>Where: <Long text={where} /></Text> : null}
        {safe ? <Text>Safe: <Long text={safe} /></Text> : null}
        {repair ? <Text>Repair: <Repair text={repair} /></Text> : check ? <Text>Check: <Repair text={check} /></Text> : null}
        {children}
        {isAddress(page) ? <Anchor href={page} target="_blank" rel="noreferrer" textDecoration="underline" data-testid="problem-page">What to do</Anchor> : null}
      </Box>
    </HStack>
  );
}

/** An alert of a connector. The sentence of a run that has failed ends with the first words of its error, which the box has whole. */
export function AlertBox({ alert, tone, children }: { alert: Alert; tone: Tone; children?: ReactNode }) {
  const failed = alert.kind === "RunFailed";
  const what = failed ? <>The last run failed{alert.cause?.at ? <> <When at={alert.cause.at} /></> : null}:</> : <Long text={sentence(alert.sentence)} />;
  return (
    <ProblemBox tone={failed ? "bad" : tone} what={what} cause={alert.cause} safe={alert.cause?.safe || alert.safe} check={alert.check} page={alert.page} testId={failed ? "last-error" : "alert"}>
      {children}
      {alert.task ? (
        <Text>
          Task: <Long text={alert.task.text} most={120} />.{" "}
          <Anchor asChild textDecoration="underline"><Link to={`/${alert.task.log_path}`}>Log of the task</Link></Anchor>
        </Text>
      ) : null}
    </ProblemBox>
  );
}
