/** Work that is done once for everybody who wants the same thing at the same time. */
export interface Flights<T> {
  /**
   * The outcome of the work under `key`: of one under way, else of `begin`. Rejects as soon as `signal` is aborted.
   * Work that nobody waits for any more is aborted, and not joined again.
   */
  join(key: string, signal: AbortSignal, begin: (signal: AbortSignal) => Promise<T>): Promise<T>;
  readonly size: number;
}

interface Flight<T> {
  outcome: Promise<T>;
  passengers: number;
  end: AbortController;
}

export function createFlights<T>(): Flights<T> {
  const flights = new Map<string, Flight<T>>();

  function take(key: string, begin: (signal: AbortSignal) => Promise<T>): Flight<T> {
    const known = flights.get(key);
    if (known) return known;
    const end = new AbortController();
    const flight: Flight<T> = {
      passengers: 0,
      end,
      outcome: begin(end.signal).finally(() => forget(key, flight)),
    };
    // With the last passenger gone nobody hears of a failure.
    flight.outcome.catch(() => {});
    flights.set(key, flight);
    return flight;
  }

  function forget(key: string, flight: Flight<T>): void {
    if (flights.get(key) === flight) flights.delete(key);
  }

  return {
    async join(key, signal, begin) {
      signal.throwIfAborted();
      const flight = take(key, begin);
      flight.passengers++;
      let leave: (() => void) | undefined;
      try {
        const left = new Promise<never>((_, reject) => {
          leave = () => reject(signal.reason);
          signal.addEventListener('abort', leave, { once: true });
        });
        return await Promise.race([flight.outcome, left]);
      } finally {
        if (leave) signal.removeEventListener('abort', leave);
        if (--flight.passengers === 0) {
          forget(key, flight);
          flight.end.abort();
        }
      }
    },
    get size() {
      return flights.size;
    },
  };
}
