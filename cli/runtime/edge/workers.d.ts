/** The only import of the Workers runtime by name. Its global types would replace those of the DOM. */
declare module 'cloudflare:workers' {
  import type { DurableObjectState, Rpc } from '@cloudflare/workers-types';

  export abstract class DurableObject<Env = unknown> {
    readonly [Rpc.__DURABLE_OBJECT_BRAND]: never;
    protected readonly ctx: DurableObjectState;
    protected readonly env: Env;
    constructor(ctx: DurableObjectState, env: Env);
  }
}

/** An alias of `dist/cli/pages.js`. */
declare module 'svc-relay-pages' {
  export const files: import('../../../lib/web/pages.ts').PageFile[];
}

declare class WebSocketPair {
  0: WebSocket;
  1: WebSocket;
}

declare class WebSocketRequestResponsePair {
  readonly request: string;
  readonly response: string;
  constructor(request: string, response: string);
}
