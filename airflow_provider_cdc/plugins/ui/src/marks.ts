// What has happened, drawn over a chart: a line at its time, and a sign at the top.
import type { Chart, Plugin } from "chart.js";

import type { ChartsOf } from "./api";

type Mark = ChartsOf["marks"][number];

export const SIGNS: Record<Mark["kind"], { sign: string; colour: string }> = {
  run: { sign: "·", colour: "" },
  error: { sign: "✕", colour: "#d53f3f" },
  snapshot: { sign: "■", colour: "#2f855a" },
  "schema change": { sign: "▲", colour: "#9f5fd0" },
};

/** The plugin of one chart, whose marks may change. */
export function marksOf(shown: { marks: Mark[]; text: string }): Plugin<"line"> {
  return {
    id: "cdc-marks",
    afterDatasetsDraw(chart: Chart<"line">) {
      const { ctx, chartArea: area } = chart;
      const scale = chart.scales.x;
      if (scale === undefined) {
        return;
      }
      ctx.save();
      ctx.textAlign = "center";
      ctx.font = "11px sans-serif";
      const levels = Object.keys(SIGNS);
      for (const mark of shown.marks) {
        const x = scale.getPixelForValue(Date.parse(mark.at));
        if (x < area.left || x > area.right) {
          continue;
        }
        const { sign, colour } = SIGNS[mark.kind];
        ctx.strokeStyle = ctx.fillStyle = colour || shown.text;
        ctx.globalAlpha = colour ? 0.6 : 0.4;
        ctx.beginPath();
        const top = area.top + 12 * levels.indexOf(mark.kind); // signs of one moment stand below each other
        ctx.moveTo(x, colour ? top : area.bottom - 5);
        ctx.lineTo(x, area.bottom);
        ctx.stroke();
        if (colour) {
          ctx.globalAlpha = 1;
          ctx.fillText(sign, x, top - 2);
        }
      }
      ctx.restore();
    },
  };
}
