import deployment, {
  BrokerObject as DeployedBroker,
  BrokerCounter as DeployedCounter,
  RelayObject as DeployedRelay,
} from '../../../cli/runtime/edge/worker.ts';

/** Host for questions: `GET` answers with what was counted since the last one. */
const METER_HOST = 'meter.test';

const ZERO = {
  wakes: 0,
  workerRequests: 0,
  requests: 0,
  messages: 0,
  alarms: 0,
  rowsRead: 0,
  rowsWritten: 0,
  awakeMs: 0,
  storedBytes: 0,
};

/** Counts for the whole isolate, which all objects share. */
const meter = { ...ZERO };
type Cursor = { rowsRead: number; rowsWritten: number };
const sizes = new Map<string, number>();
/** Milliseconds after an event for which its object is watched. */
const AFTERMATH = 1_000;
let busy = 0;
let since = 0;

/** An event or a timer keeps an object from sleeping until it ends. */
function enter(): () => void {
  if (busy++ === 0) since = Date.now();
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    if (--busy === 0) meter.awakeMs += Date.now() - since;
  };
}

const timers = new Map<unknown, () => void>();
const { setTimeout: later, clearTimeout: never } = globalThis;
Object.assign(globalThis, {
  setTimeout(run: (...values: unknown[]) => void, delay?: number, ...values: unknown[]) {
    const leave = enter();
    const id = later(() => {
      timers.delete(id);
      try {
        run(...values);
      } finally {
        leave();
      }
    }, delay);
    timers.set(id, leave);
    return id;
  },
  clearTimeout(id: unknown) {
    timers.get(id)?.();
    timers.delete(id);
    never(id as never);
  },
});

type State = { id: { toString(): string }; storage: Record<string, unknown> & { sql: Record<string, unknown> } };

/**
 * Counts the rows of an object's storage, through SQL and through its other calls, which cost a row each. The function that it
 * returns adds up what there is by then: a cursor knows its rows only after it was read, and only its own object may ask it.
 */
function watch(state: State): () => void {
  const { storage } = state;
  const { sql } = storage;
  const cursors: Cursor[] = [];
  const exec = (sql.exec as (...values: unknown[]) => Cursor).bind(sql);
  sql.exec = (...values: unknown[]) => {
    const cursor = exec(...values);
    cursors.push(cursor);
    return cursor;
  };
  for (const [names, field] of [
    [['get', 'getAlarm'], 'rowsRead'],
    [['put', 'delete', 'setAlarm'], 'rowsWritten'],
  ] as const) {
    for (const name of names) {
      const call = (storage[name] as (...values: unknown[]) => unknown).bind(storage);
      storage[name] = (...values: unknown[]) => {
        meter[field]++;
        return call(...values);
      };
    }
  }
  return () => {
    for (const { rowsRead, rowsWritten } of cursors.splice(0)) {
      meter.rowsRead += rowsRead;
      meter.rowsWritten += rowsWritten;
    }
    sizes.set(String(state.id), sql.databaseSize as number);
  };
}

type Constructor = new (state: never, env: never) => object;

/** A class of objects that counts: its wakes, and calls of the members that `calls` gives a count for. */
function metered<T extends Constructor>(Base: T, calls: Record<string, keyof typeof ZERO | null>): T {
  const sums = new WeakMap<object, () => void>();
  const Metered = class extends (Base as Constructor) {
    constructor(state: never, env: never) {
      meter.wakes++;
      const leave = enter();
      const sum = watch(state);
      super(state, env);
      sums.set(this, sum);
      later(leave, 0);
    }
  };
  for (const [name, field] of Object.entries(calls)) {
    Object.defineProperty(Metered.prototype, name, {
      async value(...values: unknown[]) {
        if (field) meter[field]++;
        const leave = enter();
        try {
          return await Base.prototype[name].apply(this, values);
        } finally {
          leave();
          later(() => sums.get(this)?.(), AFTERMATH);
        }
      },
    });
  }
  return Metered as unknown as T;
}

const EVENTS = {
  fetch: 'requests',
  webSocketMessage: 'messages',
  webSocketClose: null,
  webSocketError: null,
  alarm: 'alarms',
} as const;
export const RelayObject = metered(DeployedRelay, EVENTS);
export const BrokerObject = metered(DeployedBroker, EVENTS);
export const BrokerCounter = metered(DeployedCounter, { report: 'requests', counts: 'requests' });

function read(): typeof ZERO {
  if (busy > 0) {
    meter.awakeMs += Date.now() - since;
    since = Date.now();
  }
  const counted = { ...meter, storedBytes: [...sizes.values()].reduce((sum, size) => sum + size, 0) };
  Object.assign(meter, ZERO);
  return counted;
}

export default {
  fetch(request: Request, env: Parameters<typeof deployment.fetch>[1]): Promise<Response> | Response {
    if (new URL(request.url).hostname === METER_HOST) return Response.json(read());
    meter.workerRequests++;
    return deployment.fetch(request, env);
  },
};
