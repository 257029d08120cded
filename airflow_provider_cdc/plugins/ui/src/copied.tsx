import { Box, Button, Code } from "@chakra-ui/react";
import { useRef, useState } from "react";

/** A text to copy: by its button, or by hand where the browser does not let pages copy. */
export function Copied({ text, label }: { text: string; label: string }) {
  const shown = useRef<HTMLElement>(null);
  const [copied, setCopied] = useState({ text: "", how: "" });
  const done = copied.text === text ? copied.how : ""; // of another text, nothing was copied yet
  const setDone = (how: string) => setCopied({ text, how });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone("Copied");
    } catch {
      // pages that did not come by https have no clipboard
      const range = document.createRange();
      range.selectNodeContents(shown.current ?? document.body);
      getSelection()?.removeAllRanges();
      getSelection()?.addRange(range);
      setDone(document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C");
    }
  };
  return (
    <Box display="flex" gap={2} alignItems="flex-start" my={1}>
      <Code ref={shown} as="pre" flex="1" minW={0} maxH="30rem" overflowY="auto" tabIndex={0} role="region" aria-label={label} p={2} whiteSpace="pre-wrap" overflowWrap="anywhere" unicodeBidi="isolate">
        {text}
      </Code>
      <Button size="xs" variant="outline" aria-label={`${done || "Copy"}: ${label}`} onClick={() => void copy()}>
        {done || "Copy"}
      </Button>
    </Box>
  );
}
