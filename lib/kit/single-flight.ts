/** One caller's share in the work. Every caller must leave in the end. */
export interface Share<T> {
  readonly outcome: Promise<T>;
  /** When the last caller leaves, running work is aborted; a later `join` starts it again. */
  leave(): void;
}

interface Flight<T> {
  outcome: Promise<T>;
  callers: number;
  end: AbortController;
}

/** Runs the same work once for all callers that request it at the same time. */
export function createSingleFlight<T>() {
  const flights = new Map<string, Flight<T>>();

  function flightOf(key: string, start: (signal: AbortSignal) => Promise<T>): Flight<T> {
    const running = flights.get(key);
    if (running) return running;
    const end = new AbortController();
    const outcome = start(end.signal).finally(() => forget(key, flight));
    const flight: Flight<T> = { callers: 0, end, outcome };
    // Once every caller has left, a failure has no handler.
    outcome.catch(() => {});
    flights.set(key, flight);
    return flight;
  }

  function forget(key: string, flight: Flight<T>): void {
    if (flights.get(key) === flight) flights.delete(key);
  }

  return {
    /** Joins the running work of `key`, or starts it. */
    join(key: string, start: (signal: AbortSignal) => Promise<T>): Share<T> {
      const flight = flightOf(key, start);
      flight.callers++;
      let hasLeft = false;
      return {
        outcome: flight.outcome,
        leave() {
          if (hasLeft) return;
          hasLeft = true;
          if (--flight.callers > 0) return;
          forget(key, flight);
          flight.end.abort();
        },
      };
    },
    /** Number of keys with work in flight. */
    get size(): number {
      return flights.size;
    },
  };
}

/** Joins the running `work`, or starts it: for work that takes no arguments and that nobody aborts. */
export function singleFlight<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () => {
    running ??= work().finally(() => {
      running = undefined;
    });
    return running;
  };
}
