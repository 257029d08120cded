import { Button } from "@chakra-ui/react";
import { useState } from "react";

import { Exact } from "./long";
import { ago, bothZones, count, position, shortPosition } from "./texts";

/** How long ago a moment is; its date in the browser's zone and in UTC appear when the pointer is over it. */
export function When({ at }: { at: string | null | undefined }) {
  return at ? (
    <time dateTime={at} title={bothZones(at)}>{ago(at)}</time>
  ) : (
    <>never</>
  );
}

/** A moment with its date, in the browser's zone. */
export function Moment({ at }: { at: string | number }) {
  const moment = typeof at === "number" ? new Date(at * 1000).toISOString() : at;
  return <time dateTime={moment} title={bothZones(moment)}>{new Date(moment).toLocaleString()}</time>;
}

/** The two fields of a position that people compare; the others on request. */
export function Position({ of }: { of: Record<string, unknown> | null | undefined }) {
  const [all, setAll] = useState(false);
  const [short, left] = shortPosition(of);
  return (
    <>
      <Exact text={all ? position(of, true) : short} />
      {left > 0 ? (
        <>
          {" "}
          <Button size="2xs" variant="outline" aria-expanded={all} aria-label={`${all ? "Less" : `${count(left)} more`}: fields of the position`} onClick={() => setAll(!all)}>
            {all ? "Less" : `${count(left)} more`}
          </Button>
        </>
      ) : null}
    </>
  );
}
