import worker, { RelayObject as DeployedRelay } from '../../cli/runtime/worker.ts';

type State = ConstructorParameters<typeof DeployedRelay>[0];
type Env = ConstructorParameters<typeof DeployedRelay>[1];

/** A request to this host sets the variables of the relay of a port: `PUT /<port>`. */
const VARIABLES_HOST = 'variables.test';

const variables = new Map<string, Record<string, string>>();

/** An object's name: the port that its clients call, and what a deployment would call it. */
const portOf = (name = ''): string => name.slice(0, name.indexOf('/'));

/** The deployed object, with the variables of its own relay. */
export class RelayObject extends DeployedRelay {
  constructor(state: State, env: Env) {
    super(state, { ...env, ...variables.get(portOf(state.id.name)) });
  }
}

/** The deployed entry, for many relays in one runtime: each port that is called has its own. */
export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { hostname, port, pathname } = new URL(request.url);
    if (hostname === VARIABLES_HOST) {
      variables.set(pathname.slice(1), await request.json());
      return new Response();
    }
    const relays = env.RELAY;
    const ofPort = {
      idFromName: (name: string) => relays.idFromName(`${port}/${name}`),
      get: (id: ReturnType<typeof relays.idFromName>) => relays.get(id),
    };
    return worker.fetch(request, { ...env, ...variables.get(port), RELAY: ofPort as typeof relays });
  },
};
