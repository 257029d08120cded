import { Box, Heading, Text } from "@chakra-ui/react";
import { Chart, Filler, Legend, LinearScale, LineController, LineElement, PointElement, Tooltip } from "chart.js";
import { useEffect, useRef } from "react";

import type { ChartsOf } from "./api";
import { marksOf } from "./marks";
import { bothZones } from "./texts";

Chart.register(Filler, Legend, LinearScale, LineController, LineElement, PointElement, Tooltip);

const COLOURS = ["#3182ce", "#dd6b20", "#319795", "#b83280", "#718096", "#805ad5"];
const DAY_MS = 86_400_000;

export interface Drawn {
  name: string;
  points: { x: number; y: number | null }[];
}

interface Props {
  title: string;
  lines: Drawn[];
  marks: ChartsOf["marks"];
  /** Milliseconds since 1970. */
  since: number;
  until: number;
}

const moment = (at: number, span: number) =>
  new Date(at).toLocaleString([], { hour: "2-digit", minute: "2-digit", ...(span > DAY_MS / 2 ? { weekday: "short" } : span < HOUR_MS / 12 ? { second: "2-digit" } : {}) });

const HOUR_MS = 3_600_000;
const STEPS_MS = [10_000, 30_000, 60_000, 120_000, 300_000, HOUR_MS / 6, 4 * HOUR_MS, DAY_MS];

/** Moments with round times of day where the person is. */
function rounds(since: number, until: number): number[] {
  const step = STEPS_MS.find((one) => (until - since) / one < 9) ?? DAY_MS;
  const zone = new Date(until).getTimezoneOffset() * 60_000;
  const first = Math.ceil((since - zone) / step) * step + zone;
  return Array.from({ length: Math.max(0, Math.floor((until - first) / step) + 1) }, (_, n) => first + n * step);
}

/** One chart. What it shows is in its table, too: a canvas says little to a screen reader. */
export function Line({ title, lines, marks, since, until }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const chart = useRef<Chart<"line", Drawn["points"]> | null>(null);
  const shown = useRef<{ marks: ChartsOf["marks"]; text: string }>({ marks, text: "" });
  useEffect(() => {
    if (canvas.current === null) {
      return;
    }
    const made = new Chart<"line", Drawn["points"]>(canvas.current, {
      type: "line",
      data: { datasets: [] },
      options: {
        animation: false,
        parsing: false,
        maintainAspectRatio: false,
        interaction: { mode: "nearest", intersect: false },
        scales: { x: { type: "linear" }, y: { beginAtZero: true, ticks: { maxTicksLimit: 6 } } },
        plugins: { tooltip: { callbacks: { title: (items) => bothZones(new Date(items[0]?.parsed.x ?? 0).toISOString()) } } },
      },
      plugins: [marksOf(shown.current)],
    });
    chart.current = made;
    const paint = () => {
      const colour = getComputedStyle(canvas.current ?? document.body).color;
      const faint = `color-mix(in srgb, ${colour} 15%, transparent)`;
      shown.current.text = colour;
      for (const scale of Object.values(made.options.scales ?? {})) {
        Object.assign(scale ?? {}, { grid: { color: faint, tickColor: faint }, ticks: { ...scale?.ticks, color: colour } });
      }
      Object.assign(made.options.plugins?.legend ?? {}, { labels: { color: colour, boxWidth: 12, boxHeight: 2 } });
      made.update("none");
    };
    paint();
    // Airflow's theme is a class of the document
    const themed = new MutationObserver(paint);
    themed.observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
    return () => {
      themed.disconnect();
      made.destroy();
    };
  }, []);
  useEffect(() => {
    const made = chart.current;
    if (made === null) {
      return;
    }
    shown.current.marks = marks;
    made.data.datasets = lines.map(({ name, points }, n) => {
      const colour = COLOURS[n % COLOURS.length] ?? "";
      return { label: name, data: points, borderColor: colour, backgroundColor: `${colour}22`, borderWidth: 2, borderDash: n % 2 ? [5, 3] : [], pointRadius: 1.5, fill: lines.length === 1 };
    });
    const afterBuildTicks = (scale: { ticks: { value: number }[] }) => {
      scale.ticks = rounds(since, until).map((value) => ({ value }));
    };
    Object.assign(made.options.scales?.x ?? {}, { min: since, max: until, afterBuildTicks });
    Object.assign(made.options.scales?.x?.ticks ?? {}, { autoSkip: true, maxRotation: 0, callback: (at: number | string) => moment(Number(at), until - since) });
    Object.assign(made.options.plugins?.legend ?? {}, { display: lines.length > 1 });
    made.update("none");
  }, [lines, marks, since, until]);
  const last = lines[0]?.points.filter(({ y }) => y !== null).at(-1)?.y;
  return (
    <Box>
      <Heading as="h3" size="sm">
        {title}
      </Heading>
      <Box h="200px" color="fg.muted" position="relative">
        {last === undefined || last === null ? <Text position="absolute" inset={0} display="flex" alignItems="center" justifyContent="center" pointerEvents="none">Not measured in this time span.</Text> : null}
        <canvas ref={canvas} role="img" aria-label={`${title}: ${last === undefined || last === null ? "no data" : `latest ${last.toFixed(1)}`}`} />
      </Box>
    </Box>
  );
}
