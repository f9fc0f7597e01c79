import { RelayError } from '../lib/errors.ts';
import { json, readJson } from '../lib/web/json.ts';
import { nameOf } from './actor.ts';
import type { Handler } from './request.ts';

/** `POST /relay/freeze` `{reason?}`: stops all actions of agents on devices (contract 09 §3). */
export const freezeRelay: Handler = async (request, relay) => {
  const { reason = '' } = await readJson(request, { empty: true });
  if (typeof reason !== 'string') throw new RelayError('invalid', 'reason must be a string');
  return json(await relay.gate.freeze(nameOf(request), reason));
};

/** `DELETE /relay/freeze` (contract 09 §3). */
export const thawRelay: Handler = async (request, relay) => {
  await relay.gate.thaw(nameOf(request));
  return json({ frozen: false });
};
