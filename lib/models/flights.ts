/** Work that is done once for everybody who wants the same thing at the same time. */
export interface Flights<T> {
  /** Joins the work under `key` that is under way, else begins it. */
  join(key: string, begin: (signal: AbortSignal) => Promise<T>): Passage<T>;
  readonly size: number;
}

/** One's part in a flight. Everybody leaves, in the end. */
export interface Passage<T> {
  readonly outcome: Promise<T>;
  /** Work that everybody has left is aborted, and not joined again. */
  leave(): void;
}

interface Flight<T> {
  outcome: Promise<T>;
  passengers: number;
  end: AbortController;
}

export function createFlights<T>(): Flights<T> {
  const flights = new Map<string, Flight<T>>();

  function begun(key: string, begin: (signal: AbortSignal) => Promise<T>): Flight<T> {
    const known = flights.get(key);
    if (known) return known;
    const end = new AbortController();
    const outcome = begin(end.signal).finally(() => forget(key, flight));
    const flight: Flight<T> = { passengers: 0, end, outcome };
    // With the last passenger gone nobody hears of a failure.
    outcome.catch(() => {});
    flights.set(key, flight);
    return flight;
  }

  function forget(key: string, flight: Flight<T>): void {
    if (flights.get(key) === flight) flights.delete(key);
  }

  return {
    join(key, begin) {
      const flight = begun(key, begin);
      flight.passengers++;
      let aboard = true;
      return {
        outcome: flight.outcome,
        leave() {
          if (!aboard) return;
          aboard = false;
          if (--flight.passengers > 0) return;
          forget(key, flight);
          flight.end.abort();
        },
      };
    },
    get size() {
      return flights.size;
    },
  };
}
