import { createEntry } from '../../cli/runtime/edge/entry.ts';
import { RelayObject as DeployedRelay } from '../../cli/runtime/edge/worker.ts';
import { type SocketRow, sockets } from '../../handlers/sockets.ts';
import { breakable } from './breakable.ts';
import { testRows } from './socket-rows.ts';

type State = ConstructorParameters<typeof DeployedRelay>[0];
type Env = ConstructorParameters<typeof DeployedRelay>[1];

/** Host for control requests: `PUT /<host name>` sets the variables of that host's relay. */
const VARIABLES_HOST = 'variables.test';

/** Host for control requests: `PUT /<epoch ms>` stops the clock of the Worker at that time, and logs `stopped at <epoch ms>`. */
const CLOCK_HOST = 'clock.test';
let stoppedAt: number | undefined;

const loadPages = async () => (await import('svc-relay-pages')).files;
const worker = createEntry(loadPages, [...sockets, ...testRows], { now: () => stoppedAt ?? Date.now() });
const variables = new Map<string, Record<string, string>>();

/** Host for control requests: `PUT /<host name>` makes the storage of that host's relay fail, `DELETE` repairs it. */
const STORAGE_HOST = 'storage.test';
const broken = new Set<string>();

/** The deployed object with variables of its own, and with sockets made up for tests. */
export class RelayObject extends DeployedRelay {
  constructor(state: State, env: Env) {
    super(state, { ...env, ...variables.get(state.id.name ?? '') });
  }

  protected override executor(state: State) {
    return breakable(super.executor(state), () => broken.has(state.id.name ?? ''));
  }

  protected override rows(): readonly SocketRow[] {
    return [...super.rows(), ...testRows];
  }
}

/** The deployed entry, where each host name has its own relay, with variables per relay. */
export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { hostname, pathname } = new URL(request.url);
    if (hostname === STORAGE_HOST) {
      if (request.method === 'PUT') broken.add(pathname.slice(1));
      else broken.delete(pathname.slice(1));
      return new Response();
    }
    if (hostname === CLOCK_HOST) {
      stoppedAt = Number(pathname.slice(1));
      // biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
      console.log(`stopped at ${stoppedAt}`);
      return new Response();
    }
    if (hostname !== VARIABLES_HOST) return worker.fetch(request, env);
    variables.set(pathname.slice(1), await request.json());
    return new Response();
  },
};
