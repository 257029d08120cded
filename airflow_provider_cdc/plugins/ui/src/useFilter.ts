import { useEffect, useRef, useState } from "react";
import { useSearchParams } from "react-router-dom";

/**
 * What a list is narrowed to, by name, kept in the page's address, so that it can be handed on as a link.
 *
 * The fields show what was typed at once and the address follows: a router may take its time with it, and a field that
 * waited for the address would lose the letters typed meanwhile.
 */
export function useFilter<Name extends string>(names: readonly Name[]): [Record<Name, string>, (name: Name, value: string) => void] {
  const [query, setQuery] = useSearchParams();
  const address = written(names, read(names, query));
  const [filter, setFilter] = useState(() => read(names, query));
  const wanted = written(names, filter);
  const ours = useRef([address]); // what was asked of the router, from the last that has come on
  useEffect(() => {
    if (wanted !== ours.current.at(-1)) {
      ours.current.push(wanted);
      setQuery(wanted, { replace: true });
    }
  }, [wanted, setQuery]);
  useEffect(() => {
    const come = ours.current.lastIndexOf(address);
    ours.current = come < 0 ? [address] : ours.current.slice(come);
    if (come < 0) {
      setFilter(read(names, new URLSearchParams(address))); // a link, or the way back
    }
  }, [address, names]);
  return [filter, (name, value) => setFilter((before) => ({ ...before, [name]: value }))];
}

function read<Name extends string>(names: readonly Name[], query: URLSearchParams) {
  return Object.fromEntries(names.map((name) => [name, query.get(name) ?? ""])) as Record<Name, string>;
}

function written<Name extends string>(names: readonly Name[], filter: Record<Name, string>): string {
  return new URLSearchParams(names.filter((name) => filter[name]).map((name) => [name, filter[name]])).toString();
}
