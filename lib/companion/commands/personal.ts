import { withTimeout } from '../../kit/timeouts.ts';
import type { device } from '../../operations/device.ts';
import { DeviceFailure } from '../device.ts';
import { alwaysAsk } from '../gates/consent.ts';
import { type CommandCall, CommandFailure, type Handler, throwIfRefused } from '../gates/gate.ts';
import { badRequest, type HandlerOf, type Problem } from './args.ts';

const STALE_MS = 5 * 60_000;
const CARRIER_TIMEOUT_MS = 15_000;

export const location: Handler = async ({ env }) => {
  const fix = await env.device.location();
  if (!fix) throw badRequest('no location fix yet');
  const staleness_ms = Math.max(0, env.clock.now() - fix.timestamp);
  return {
    ...fix,
    staleness_ms,
    ...(staleness_ms > STALE_MS && { warning: 'this location is more than 5 minutes old' }),
  };
};

const PHONE_TYPES = ['mobile', 'main', 'home', 'work', 'other'];

/** Sort order: `PHONE_TYPES`, other types, then watches, pagers and fax machines. */
function phoneRank({ type, label }: { type: string; label: string }): number {
  if (/watch|pager|fax/i.test(label)) return PHONE_TYPES.length + 1;
  const index = PHONE_TYPES.indexOf(type.toLowerCase());
  return index === -1 ? PHONE_TYPES.length : index;
}

export const searchContacts: HandlerOf<typeof device.searchContacts> = async ({ env }, { query, limit }) => {
  const found = (await env.device.contacts(query, limit)).slice(0, limit);
  const contacts = found.map(({ id, name, phones }) => ({
    id,
    name,
    phones: phones
      .map(({ number, type, label }) => ({ number, type, label }))
      .sort((a, b) => phoneRank(a) - phoneRank(b)),
  }));
  return { count: contacts.length, query, contacts };
};

export const placeCall: HandlerOf<typeof device.call> = async (call, { number }) => {
  throwIfRefused(await alwaysAsk(call, 'Place a call?', `Call to ${number}`));
  const mode = await call.env.device.call(number);
  if (mode === 'auto_dial') return { number, mode };
  return { number, mode, note: 'the dialer is open; the person has to press call' };
};

const smsFailure = (reason: string, error: string, more: Record<string, unknown> = {}) =>
  new CommandFailure(400, error, { status: 'failed', reason, ...more });

/** The failure for malformed arguments of `/send_sms` (contract 03 §5). */
export function badSms({ type, message }: Problem): CommandFailure {
  if (type === 'regex') return smsFailure('invalid_recipient', message);
  const expected_schema = { to: 'string, a phone number', body: 'string, not empty' };
  return smsFailure('invalid_schema', 'send_sms needs to and body', { expected_schema });
}

export const sendSms: HandlerOf<typeof device.sendSms> = async (call, { to, body }) => {
  throwIfRefused(await alwaysAsk(call, 'Send a text message?', `SMS to ${to}: ${body}`));
  const parts = smsParts(body);
  const result = await sendThroughCarrier(call, to, body);
  if (result === 'timeout') {
    throw new CommandFailure(400, 'the carrier did not answer', {
      status: 'timeout',
      reason: 'carrier_ack_timeout',
      android_result: 'timeout',
      parts,
    });
  }
  if (result !== 'RESULT_OK') {
    throw smsFailure('carrier_error', 'the carrier refused the message', { android_result: result, parts });
  }
  const summary = `SMS sent to ${to} (${parts} ${parts === 1 ? 'part' : 'parts'})`;
  return { status: 'sent', android_result: result, to, length: body.length, parts, summary };
};

async function sendThroughCarrier({ env }: CommandCall, to: string, body: string) {
  try {
    const timing = { clock: env.clock, timeout: CARRIER_TIMEOUT_MS };
    return await withTimeout(timing, env.device.sendSms(to, body), () => 'timeout' as const);
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

/** GSM 03.38: characters of one septet, and those that take two. */
const GSM_BASIC = new Set(
  '@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !"#¤%&\'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà',
);
const GSM_EXTENDED = new Set('\f^{}\\[~]|€');

/**
 * The number of messages that a text is split into. A single message holds slightly more per part, because parts carry
 * a header.
 */
function smsParts(text: string): number {
  let septets = 0;
  for (const character of text) {
    if (GSM_BASIC.has(character)) septets += 1;
    else if (GSM_EXTENDED.has(character)) septets += 2;
    else return text.length <= 70 ? 1 : Math.ceil(text.length / 67);
  }
  return septets <= 160 ? 1 : Math.ceil(septets / 153);
}
