import { Box } from "@chakra-ui/react";

export type Tone = "good" | "waits" | "late" | "bad";

/** Colours and signs: a tone is never a colour alone. */
export const TONES: Record<Tone, { colour: string; sign: string; word: string }> = {
  good: { colour: "green", sign: "✓", word: "works" },
  waits: { colour: "gray", sign: "‖", word: "waits" },
  late: { colour: "orange", sign: "!", word: "late" },
  bad: { colour: "red", sign: "✕", word: "stops here" },
};

export function Sign({ tone }: { tone: Tone }) {
  const { colour, sign, word } = TONES[tone];
  return (
    <Box as="span" role="img" aria-label={word} display="inline-flex" alignItems="center" justifyContent="center" flex="none" w={5} h={5} borderRadius="full" fontSize="xs" fontWeight="bold" bg={`${colour}.solid`} color={`${colour}.contrast`}>
      {sign}
    </Box>
  );
}
