import worker, { RelayObject as DeployedRelay } from '../../cli/runtime/edge/worker.ts';

type State = ConstructorParameters<typeof DeployedRelay>[0];
type Env = ConstructorParameters<typeof DeployedRelay>[1];

/** A request to this host sets the variables of the relay of another: `PUT /<host name>`. */
const VARIABLES_HOST = 'variables.test';

const variables = new Map<string, Record<string, string>>();

/** The deployed object, with the variables of its own relay. */
export class RelayObject extends DeployedRelay {
  constructor(state: State, env: Env) {
    super(state, { ...env, ...variables.get(state.id.name ?? '') });
  }
}

/** The deployed entry: each host name has a relay of its own, here with its own variables. */
export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { hostname, pathname } = new URL(request.url);
    if (hostname !== VARIABLES_HOST) return worker.fetch(request, env);
    variables.set(pathname.slice(1), await request.json());
    return new Response();
  },
};
