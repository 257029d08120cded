import { Box, Heading, SimpleGrid, Text } from "@chakra-ui/react";
import { Chart, Filler, LinearScale, LineController, LineElement, PointElement, Tooltip } from "chart.js";
import { useEffect, useRef } from "react";

import type { Measurements } from "./api";
import { Shown } from "./bits";
import { duration } from "./texts";
import { useAsked } from "./useAsked";

Chart.register(Filler, LinearScale, LineController, LineElement, PointElement, Tooltip);

interface Point {
  x: number;
  y: number;
}

/** Lag, throughput and durations of the last runs; runs that have failed are marked. */
export function Charts({ path }: { path: string }) {
  const asked = useAsked<Measurements>(`${path}/metrics`, 15);
  return (
    <Shown asked={asked}>
      {({ runs }) => {
        const capture = runs.capture ?? [];
        if (capture.length === 0) {
          return <Text color="fg.muted">No run has ended yet.</Text>;
        }
        const of = (name: string, found = capture) =>
          found.filter((run) => run.gauges[name] !== undefined).map((run) => ({ x: Date.parse(run.at), y: run.gauges[name] ?? 0 }));
        const failed = capture.filter((run) => run.gauges["run.LastRunFailed"]).map((run) => Date.parse(run.at));
        const events = capture.map((run) => ({ x: Date.parse(run.at), y: run.counters["streaming.TotalNumberOfEventsSeen"] ?? 0 }));
        const rates = events.slice(1).map((now, n) => {
          const before = events[n] ?? now;
          return { x: now.x, y: ((now.y - before.y) / Math.max(now.x - before.x, 1)) * 1000 };
        });
        return (
          <>
            <Text color="fg.muted" my={2}>
              {capture.length} runs of the capture, the first {duration((Date.now() - Date.parse(capture[0]?.at ?? "")) / 1000)} ago; {failed.length ? `${failed.length} of them failed, marked with a cross` : "none of them failed"}.
            </Text>
            <SimpleGrid columns={{ base: 1, lg: 2 }} gap={5}>
              <Line title="Behind its source, in seconds" points={of("streaming.MilliSecondsBehindSource").map(({ x, y }) => ({ x, y: y / 1000 }))} failed={failed} />
              <Line title="Events per second, from run to run" points={rates} failed={failed} />
              <Line title="Duration of runs, in seconds" points={of("run.LastRunDurationInSeconds")} failed={failed} />
              {Object.entries(runs)
                .filter(([producer, found]) => producer !== "capture" && of("apply.LastRunDurationInSeconds", found).length > 0)
                .map(([producer, found]) => (
                  <Line key={producer} title={`Duration of ${producer}, in seconds`} points={of("apply.LastRunDurationInSeconds", found)} failed={found.filter((run) => run.gauges["apply.LastRunFailed"]).map((run) => Date.parse(run.at))} />
                ))}
            </SimpleGrid>
          </>
        );
      }}
    </Shown>
  );
}

function Line({ title, points, failed }: { title: string; points: Point[]; failed: number[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const chart = useRef<Chart<"line", Point[]> | null>(null);
  useEffect(() => {
    if (canvas.current === null) {
      return;
    }
    const made = new Chart<"line", Point[]>(canvas.current, {
      type: "line",
      data: { datasets: [{ data: [], borderWidth: 2, fill: true }] },
      options: {
        animation: false,
        parsing: false,
        maintainAspectRatio: false,
        scales: { x: { type: "linear", ticks: { maxTicksLimit: 6, callback: (at) => new Date(Number(at)).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) } }, y: { beginAtZero: true } },
        plugins: { tooltip: { callbacks: { title: (items) => new Date(items[0]?.parsed.x ?? 0).toLocaleString() } } },
      },
    });
    chart.current = made;
    const paint = () => {
      const colour = getComputedStyle(canvas.current ?? document.body).color;
      const faint = `color-mix(in srgb, ${colour} 15%, transparent)`;
      for (const scale of Object.values(made.options.scales ?? {})) {
        Object.assign(scale ?? {}, { grid: { color: faint, tickColor: faint }, ticks: { ...scale?.ticks, color: colour } });
      }
      Object.assign(made.data.datasets[0] ?? {}, { borderColor: "#3182ce", backgroundColor: "#3182ce33", pointBorderColor: colour });
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
    const shown = chart.current?.data.datasets[0];
    if (shown !== undefined) {
      shown.data = points;
      shown.pointStyle = points.map((point) => (failed.includes(point.x) ? "crossRot" : "circle"));
      shown.pointRadius = points.map((point) => (failed.includes(point.x) ? 6 : 1.5));
      chart.current?.update("none");
    }
  }, [points, failed]);
  const last = points.at(-1);
  return (
    <Box>
      <Heading as="h3" size="sm">
        {title}
      </Heading>
      <Box h="180px" color="fg.muted">
        <canvas ref={canvas} role="img" aria-label={`${title}: ${last ? `${last.y.toFixed(1)} last` : "nothing measured"}`} />
      </Box>
    </Box>
  );
}
