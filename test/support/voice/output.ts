import { bearer, type Paired, post, type Target } from '../relay.ts';
import { startVoicePhone, type VoicePhone } from './phone.ts';

/** Body of `POST /voice/output/session`. */
export interface OutputAnswer {
  success: true;
  session_id: string;
  websocket_path: string;
  resume_token: string;
  event_log_path: string;
  [member: string]: unknown;
}

/** Asks for a session of voice output. */
export const requestOutput = (
  target: Target,
  token: string,
  body: unknown = { provider: 'stub' },
): Promise<Response> => {
  const { method, body: text, headers } = post(body);
  return target.fetch('/voice/output/session', { method, body: text, headers: { ...headers, ...bearer(token) } });
};

/** A new session of voice output. */
export async function createOutput(target: Target, token: string, body?: unknown): Promise<OutputAnswer> {
  const response = await requestOutput(target, token, body);
  if (response.status !== 200) throw new Error(`session: ${response.status} ${await response.text()}`);
  return (await response.json()) as OutputAnswer;
}

/** A phone that speaks a text in a new session, over the relay's own port or another one. */
export async function speak(
  target: Target,
  { token }: Pick<Paired, 'token'>,
  { provider = 'stub', text = 'hello there', port }: { provider?: string; text?: string; port?: () => number } = {},
): Promise<VoicePhone & { session: OutputAnswer }> {
  const session = await createOutput(target, token, { provider });
  const url = () => {
    const address = new URL(target.url.replace('http', 'ws') + session.websocket_path);
    if (port) address.port = String(port());
    return address.href;
  };
  return { ...startVoicePhone({ url, token, resumeToken: session.resume_token, text }), session };
}
