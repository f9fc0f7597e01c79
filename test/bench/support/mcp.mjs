import { httpRequest } from './http.mjs';

const HEADERS = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };

/** One message, as bytes. */
export const message = (method, params, id = 1) => JSON.stringify({ jsonrpc: '2.0', id, method, params });

export const INITIALIZE = message('initialize', {
  protocolVersion: '2025-11-25',
  capabilities: {},
  clientInfo: { name: 'bench', version: '1' },
});

/** The headers of a new MCP session. */
export async function beginSession({ port }, headers) {
  const all = { ...HEADERS, ...headers };
  const answer = await httpRequest(port, 'POST', '/mcp', { headers: all, body: INITIALIZE });
  const id = answer.headers['mcp-session-id'];
  if (answer.status !== 200 || !id) throw new Error(`initialize was answered with ${answer.status}`);
  return { ...all, 'mcp-session-id': id, 'mcp-protocol-version': '2025-11-25' };
}
