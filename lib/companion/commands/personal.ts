import { withTimeout } from '../../kit/timeouts.ts';
import { DeviceFailure } from '../device.ts';
import { alwaysAsk } from '../gates/consent.ts';
import { type Call, CommandFailure, type Handler, Refused, type Verdict } from '../gates/gate.ts';
import { isBlank } from '../text.ts';
import { clamp, integer, pick, required } from './args.ts';
import { smsParts } from './sms-parts.ts';

const STALE_MS = 5 * 60_000;
const CARRIER_MS = 15_000;
const CALLABLE = /^[+0-9 ()\-.,*#pPwW]{2,}$/;
/** Whom a text message may go to. */
export const RECIPIENT = /^[+0-9 ()\-.]{2,}$/;

/** Ends the command unless a person agreed. */
export function insist(verdict: Verdict): void {
  if (verdict.kind !== 'pass') throw new Refused(verdict);
}

export const location: Handler = async ({ env }) => {
  const fix = await env.device.location();
  if (!fix) throw new CommandFailure(400, 'no location fix yet');
  const staleness_ms = Math.max(0, env.clock.now() - fix.timestamp);
  return {
    latitude: fix.latitude,
    longitude: fix.longitude,
    accuracy: fix.accuracy,
    provider: fix.provider,
    timestamp: fix.timestamp,
    staleness_ms,
    ...(fix.altitude !== undefined && { altitude: fix.altitude }),
    ...(staleness_ms > STALE_MS && { warning: 'this location is more than 5 minutes old' }),
  };
};

const TYPES = ['mobile', 'main', 'home', 'work', 'other'];

/** Mobile, main, home, work, other, the rest; a watch, pager or fax after all of them. */
function rank({ type, label }: { type: string; label: string }): number {
  if (/watch|pager|fax/i.test(label)) return TYPES.length + 1;
  const index = TYPES.indexOf(type.toLowerCase());
  return index === -1 ? TYPES.length : index;
}

export const searchContacts: Handler = async ({ args, env }) => {
  const query = required(args, 'query');
  const limit = clamp(integer(args, 'limit') ?? 20, 1, 100);
  const found = (await env.device.contacts(query, limit)).slice(0, limit);
  const contacts = found.map(({ id, name, phones }) => ({
    id,
    name,
    phones: phones
      .map(({ number, type, label }) => ({ number, type, label }))
      .sort((one, other) => rank(one) - rank(other)),
  }));
  return { count: contacts.length, query, contacts };
};

export const call: Handler = async (command) => {
  const number = required(command.args, 'number');
  if (!CALLABLE.test(number)) throw new CommandFailure(400, 'number is not one that can be called');
  insist(await alwaysAsk(command, 'Place a call?', `Call to ${number}`));
  const mode = await command.env.device.call(number);
  if (mode === 'auto_dial') return { number, mode };
  return { number, mode, note: 'the dialer is open; the person has to press call' };
};

const failed = (reason: string, error: string, more: Record<string, unknown> = {}) =>
  new CommandFailure(400, error, { status: 'failed', reason, ...more });

export const sendSms: Handler = async (command) => {
  const [to, body] = [pick(command.args, 'to'), pick(command.args, 'body')];
  if (typeof to !== 'string' || isBlank(to) || typeof body !== 'string' || body === '') {
    const expected_schema = { to: 'string, a phone number', body: 'string, not empty' };
    throw failed('invalid_schema', 'send_sms needs to and body', { expected_schema });
  }
  if (!RECIPIENT.test(to)) throw failed('invalid_recipient', 'to is not a phone number');
  insist(await alwaysAsk(command, 'Send a text message?', `SMS to ${to}: ${body}`));
  const parts = smsParts(body);
  const result = await carrier(command, to, body);
  if (result === 'timeout') {
    throw new CommandFailure(400, 'the carrier did not answer', {
      status: 'timeout',
      reason: 'carrier_ack_timeout',
      android_result: 'timeout',
      parts,
    });
  }
  if (result !== 'RESULT_OK') {
    throw failed('carrier_error', 'the carrier refused the message', { android_result: result, parts });
  }
  const summary = `SMS sent to ${to} (${parts} ${parts === 1 ? 'part' : 'parts'})`;
  return { status: 'sent', android_result: result, to, length: body.length, parts, summary };
};

async function carrier({ env }: Call, to: string, body: string) {
  try {
    return await withTimeout(
      { clock: env.clock, timeout: CARRIER_MS },
      env.device.sendSms(to, body),
      () => 'timeout' as const,
    );
  } catch (error) {
    if (!(error instanceof DeviceFailure) || error.code !== 'permission_denied') throw error;
    throw new CommandFailure(400, error.message, {
      status: 'blocked',
      reason: 'permission_denied',
      code: error.code,
      error_code: error.code,
      permission: error.permission,
      required_permission: error.permission,
    });
  }
}
