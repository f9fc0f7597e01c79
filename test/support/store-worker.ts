import { DurableObject } from 'cloudflare:workers';
import type { DurableObjectNamespace, DurableObjectState } from '@cloudflare/workers-types';
import { durableObjectExecutor } from '../../storage/durable-object.ts';
import { createStores } from '../../storage/index.ts';
import { sqlBackend } from '../../storage/sql-backend.ts';
import { type Operation, poisonable, runTurn } from './store-turns.ts';

interface Env {
  STORES: DurableObjectNamespace<StoreObject>;
}

/** Bare stores of an object. `POST /<name>` runs one turn on the object of that name. */
export class StoreObject extends DurableObject<Env> {
  readonly #stores;

  constructor(state: DurableObjectState, env: Env) {
    super(state as never, env);
    this.#stores = createStores('edge', sqlBackend(poisonable(durableObjectExecutor(state.storage)).executor));
  }

  async fetch(request: Request): Promise<Response> {
    return Response.json(await runTurn(this.#stores, (await request.json()) as Operation[]));
  }
}

export default {
  fetch(request: Request, env: Env): Promise<Response> {
    const stub = env.STORES.get(env.STORES.idFromName(new URL(request.url).pathname));
    return stub.fetch(request as never) as unknown as Promise<Response>;
  },
};
