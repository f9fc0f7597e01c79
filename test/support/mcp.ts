import { Client, type ClientOptions, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { bearer, type Target } from './relay.ts';

export interface McpClient {
  client: Client;
  transport: StreamableHTTPClientTransport;
  close(): Promise<void>;
}

/** Connects the official client. */
export async function connectMcp(
  { url }: Pick<Target, 'url'>,
  token: string,
  {
    name = 'test-agent',
    options,
    requestInit,
  }: { name?: string; options?: ClientOptions; requestInit?: RequestInit } = {},
): Promise<McpClient> {
  const transport = new StreamableHTTPClientTransport(new URL('/mcp', url), {
    requestInit: { ...requestInit, headers: { ...bearer(token), ...requestInit?.headers } },
  });
  const client = new Client({ name, version: '1.0.0' }, options);
  await client.connect(transport);
  return {
    client,
    transport,
    async close() {
      await transport.terminateSession().catch(() => {});
      await client.close();
    },
  };
}

/** Names of the tools that are listed. */
export const toolNames = async ({ client }: McpClient): Promise<string[]> =>
  (await client.listTools()).tools.map(({ name }) => name);

/** The text of a result. */
export function textOf(result: unknown): string {
  const { content } = result as { content: { type: string; text?: string }[] };
  return content.map(({ text = '' }) => text).join('\n');
}

/** A POST of one message without the client package. */
export const message = (token: string, body: unknown, headers: Record<string, string> = {}): RequestInit => ({
  method: 'POST',
  body: typeof body === 'string' ? body : JSON.stringify(body),
  headers: {
    ...bearer(token),
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...headers,
  },
});

export const initialize = (protocolVersion = '2025-11-25', name = 'raw') => ({
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion, capabilities: {}, clientInfo: { name, version: '1' } },
});
