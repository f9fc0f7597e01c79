import type { Server, Tool } from '@modelcontextprotocol/server';
import { inputSchemas } from '../operations/json-schema.ts';
import type { Operation } from '../operations/operation.ts';
import { type CallDeps, type Caller, type CallId, type StartedCall, startCall } from './calls.ts';
import { INSTRUCTIONS, PROMPT, PROMPT_DESCRIPTION, PROMPT_TITLE, REACH_OWNER } from './guidance.ts';

/** The package, which is loaded with the first request. */
export type Kit = typeof import('@modelcontextprotocol/server');

const INVALID_PARAMS = -32602;

export interface ServerDeps extends CallDeps {
  version: string;
}

/** Creates MCP servers. Parts that are the same for all are created once. */
export function createServers(kit: Kit, deps: ServerDeps) {
  const { version, operations } = deps;
  /** Keyed by name. Input schemas are constant, except those that desktops advertise. */
  const tools = new Map<string, Tool>();

  async function toolsOf(list: readonly Operation[]): Promise<Tool[]> {
    const fresh = list.filter(({ name, advertised }) => !advertised && !tools.has(name));
    if (fresh.length > 0) {
      const schemas = await inputSchemas(fresh);
      for (const one of fresh) tools.set(one.name, toolOf(one, schemas.get(one.name) ?? {}));
    }
    return list.map((one) => (one.advertised ? toolOf(one, one.advertised) : (tools.get(one.name) as Tool)));
  }

  /** `started` returns the call of a request that began before the package saw it. */
  return function createServer(
    caller: Caller,
    started: (id: CallId) => StartedCall | undefined = () => undefined,
  ): Server {
    const server = new kit.Server(
      { name: 'svc-relay', title: 'svc-relay', version },
      { capabilities: { tools: { listChanged: true }, prompts: {} }, instructions: INSTRUCTIONS },
    );

    server.setRequestHandler('tools/list', async () => ({ tools: await toolsOf(operations.list(caller.session())) }));

    server.setRequestHandler('tools/call', async ({ params }, { mcpReq }) => {
      const operation = operations.get(params.name);
      if (!operation) throw new kit.ProtocolError(INVALID_PARAMS, 'there is no tool of this name');
      const client = server.getClientVersion()?.name;
      const call = started(mcpReq.id) ?? startCall(deps, operation, { args: params.arguments ?? {}, caller, client });
      const token = mcpReq._meta?.progressToken;
      let step = 0;
      if (token !== undefined) {
        call.follow((message) => {
          if (mcpReq.signal.aborted) return;
          const progress = { progressToken: token, progress: ++step, message };
          mcpReq.notify({ method: 'notifications/progress', params: progress }).catch(() => {});
        });
      }
      mcpReq.signal.addEventListener('abort', call.abort);
      if (mcpReq.signal.aborted) call.abort();
      return call.result;
    });

    server.setRequestHandler('prompts/list', () => ({
      prompts: [{ name: PROMPT, title: PROMPT_TITLE, description: PROMPT_DESCRIPTION }],
    }));

    server.setRequestHandler('prompts/get', ({ params }) => {
      if (params.name !== PROMPT) throw new kit.ProtocolError(INVALID_PARAMS, 'there is no prompt of this name');
      return {
        description: PROMPT_DESCRIPTION,
        messages: [{ role: 'user', content: { type: 'text', text: REACH_OWNER } }],
      };
    });

    return server;
  };
}

function toolOf(
  { name, title, description, effect, hints = {} }: Operation,
  schema: Readonly<Record<string, unknown>>,
): Tool {
  const isRead = effect === 'read';
  return {
    name,
    title,
    description,
    inputSchema: { type: 'object', ...schema } as Tool['inputSchema'],
    annotations: {
      title,
      readOnlyHint: isRead,
      destructiveHint: !isRead && hints.destructive === true,
      idempotentHint: isRead || hints.idempotent === true,
      openWorldHint: hints.openWorld === true,
    },
  };
}
