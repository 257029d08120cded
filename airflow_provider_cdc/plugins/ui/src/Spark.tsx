import { Box } from "@chakra-ui/react";

import { now } from "./texts";

export interface Dot {
  /** Seconds since 1970. */
  at: number;
  y: number;
}

const HOUR_S = 3600;
const W = 120;
const H = 24;

/** A small line of up to an hour. What it shows stands beside it as a number. */
export function Spark({ dots, unit, wide = false, old = false }: { dots: Dot[]; unit: (n: number) => string; wide?: boolean; old?: boolean }) {
  const until = now() / 1000;
  const shown = dots.filter((dot) => Number.isFinite(dot.y));
  const begin = shown[0]?.at;
  if (begin === undefined) {
    return wide ? <Box h={`${H}px`} aria-hidden="true" /> : null;
  }
  const since = Math.max(until - HOUR_S, Math.min(begin, until - 60));
  const most = Math.max(...shown.map((dot) => dot.y), 1e-9);
  const points = shown.map((dot) => {
    const x = Math.max(1, Math.min(W - 1, ((dot.at - since) / (until - since)) * W));
    return `${x.toFixed(1)},${(H - 2 - (dot.y / most) * (H - 5)).toFixed(1)}`;
  });
  const [x, y] = (points.at(-1) ?? "").split(",");
  return (
    <Box color={old ? "fg.muted" : "blue.fg"} w={wide ? "full" : `${W}px`} maxW="full" title={`most: ${unit(most)}`} my={1}>
      <svg viewBox={`0 0 ${W} ${H}`} width="100%" height={H} preserveAspectRatio="none" aria-hidden="true">
        <polygon points={`${points[0]?.split(",")[0]},${H} ${points.join(" ")} ${x},${H}`} fill="currentColor" opacity="0.12" />
        <polyline points={points.join(" ")} fill="none" stroke="currentColor" strokeWidth="1.5" vectorEffect="non-scaling-stroke" />
        {points.length === 1 ? <circle cx={x} cy={y} r="2" fill="currentColor" /> : null}
      </svg>
    </Box>
  );
}
