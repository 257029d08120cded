import { Box, HStack, Text } from "@chakra-ui/react";
import type { ReactNode } from "react";

import type { Detail } from "./api";
import { Long } from "./long";
import type { Flow, LogBar, Step } from "./flow";
import { Sign, TONES, type Tone } from "./signs";
import { Position } from "./When";

/** The way of a change: source and its log, capture, change log, and each target with its apply. */
export function Way({ found, flow }: { found: Detail; flow: Flow }) {
  const { line } = found;
  return (
    <Box as="section" aria-label="From the source to the targets" data-testid="way" display="grid" gridTemplateColumns={{ base: "1fr", md: "minmax(0, 5fr) minmax(6.5rem, 2fr) minmax(0, 4fr) minmax(0, 9fr)" }} gap={2} alignItems="stretch" my={3}>
      <Stage caption="Source" name={line.source ?? "not known"} step={flow.source}>
        <Ends log={flow.source.log} tone={flow.source.tone} />
        <Text fontSize="xs" color={muted(flow.source.tone)}>at <Position of={line.position} /></Text>
      </Stage>
      <Arrow caption="Capture" step={flow.capture} />
      <Stage caption="Change log" name={flow.changeLog.word} step={{ ...flow.changeLog, word: "" }} />
      <Box display="flex" flexDirection="column" gap={2} minW={0}>
        {flow.targets.map((target) => (
          <Box key={target.name} display="grid" gridTemplateColumns={{ base: "1fr", md: "minmax(6.5rem, 2fr) minmax(0, 7fr)" }} gap={2} flex="1" minW={0}>
            <Arrow caption="Apply" step={target.apply} />
            <Stage caption="Target" name={target.name} step={target} />
          </Box>
        ))}
        {flow.targets.length === 0 ? (
          <Box borderWidth="1px" borderStyle="dashed" borderRadius="md" p={3} flex="1">
            <Text fontWeight="semibold">No target yet</Text>
            <Text fontSize="sm" color="fg.muted">Changes stay in the change log. Add a target to the definition, and run its DAG.</Text>
          </Box>
        ) : null}
      </Box>
    </Box>
  );
}

/** Muted text is too faint on a coloured step. */
const muted = (tone: Tone) => (tone === "bad" || tone === "late" ? "fg" : "fg.muted");

function Stage({ caption, name, step, children }: { caption: string; name: string; step: Step; children?: ReactNode }) {
  const { colour } = TONES[step.tone];
  return (
    <Box borderWidth="1px" borderTopWidth="4px" borderTopColor={`${colour}.solid`} borderRadius="md" p={3} minW={0} bg={step.tone === "bad" ? "red.subtle" : step.tone === "late" ? "orange.subtle" : undefined}>
      <HStack gap={2} justify="space-between" alignItems="flex-start">
        <Text fontSize="xs" color={muted(step.tone)} textTransform="uppercase" letterSpacing="wide">{caption}</Text>
        <Sign tone={step.tone} />
      </HStack>
      <Text fontWeight="semibold"><Long text={name} most={120} /></Text>
      {step.word ? <Text fontSize="sm">{step.word}</Text> : null}
      {step.facts.filter(Boolean).map((fact) => (
        <Text key={fact} fontSize="sm" color={muted(step.tone)}><Long text={fact} most={120} /></Text>
      ))}
      {children}
    </Box>
  );
}

function Arrow({ caption, step }: { caption: string; step: Step }) {
  const { colour } = TONES[step.tone];
  const broken = step.tone === "bad";
  return (
    <Box display="flex" flexDirection="column" justifyContent="center" alignItems="center" textAlign="center" minW={0} py={1}>
      <HStack gap={1}>
        <Text fontSize="xs" color="fg.muted" textTransform="uppercase" letterSpacing="wide">{caption}</Text>
        <Sign tone={step.tone} />
      </HStack>
      <Box color={`${colour}.solid`} w="full" maxW="12rem">
        <svg viewBox="0 0 100 16" width="100%" height="16" preserveAspectRatio="none" aria-hidden="true">
          <line x1="2" y1="8" x2={broken ? "42" : "90"} y2="8" stroke="currentColor" strokeWidth="3" strokeDasharray={step.tone === "good" ? undefined : "5 4"} />
          {broken ? <path d="M44 2 L56 14 M56 2 L44 14" stroke="currentColor" strokeWidth="3" /> : <path d="M86 2 L98 8 L86 14 Z" fill="currentColor" />}
        </svg>
      </Box>
      <Text fontSize="sm" fontWeight={broken || step.tone === "late" ? "semibold" : undefined}><Long text={step.word} most={120} /></Text>
      {step.facts.filter(Boolean).map((fact) => <Text key={fact} fontSize="xs" color="fg.muted"><Long text={fact} most={120} /></Text>)}
    </Box>
  );
}

/** The log of the source with both ends, and the position in it. */
function Ends({ log, tone }: { log: LogBar; tone: Tone }) {
  const { colour } = TONES[tone];
  const at = log.lost ? 0 : (log.part ?? 1) * 100;
  return (
    <Box my={2} role="img" aria-label={`The log of the source: ${log.oldest}; ${log.newest}`}>
      <Box position="relative" h={3} borderRadius="sm" bg="bg.emphasized" ms={log.lost ? 5 : 0} overflow="visible">
        {log.part !== undefined ? <Box position="absolute" top={0} bottom={0} left={`${at}%`} right={0} bg={`${colour}.solid`} opacity={0.35} borderEndRadius="sm" /> : null}
        {log.lost || log.part !== undefined ? <Box position="absolute" top="-3px" bottom="-3px" w="4px" borderRadius="full" left={log.lost ? "-1rem" : `calc(${at}% - 2px)`} bg={`${log.lost ? "red" : colour}.solid`} /> : null}
      </Box>
      <HStack justify="space-between" gap={2} fontSize="xs" color={muted(tone)} alignItems="flex-start">
        <Text>{log.oldest}</Text>
        <Text textAlign="end">{log.newest}</Text>
      </HStack>
    </Box>
  );
}
