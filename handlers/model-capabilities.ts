import { RelayError } from '../lib/errors.ts';
import type { Capability } from '../lib/models/capabilities.ts';
import { parseCapabilitiesRequest, refusal, SCHEMA_VERSION } from '../lib/models/request.ts';
import { json, readJsonValue } from '../lib/web/json.ts';
import type { Handler, RelayRequest } from './request.ts';

/** Bytes of a body: four times 64 pairs in escaped JSON. */
const LIMIT = 2 * 1024 * 1024;
const CONTRACT_VERSION = '1.0';

/** `POST /relay/model-capabilities` (contract 07 §3). */
export const modelCapabilities: Handler = async (request, relay) => {
  const wanted = parseCapabilitiesRequest(await readBody(request));
  const capabilities = await relay.models.resolve(wanted);
  return json({
    schema_version: SCHEMA_VERSION,
    contract_version: CONTRACT_VERSION,
    capabilities: capabilities.map(rowOf),
  });
};

async function readBody(request: RelayRequest): Promise<unknown> {
  try {
    return await readJsonValue(request, LIMIT);
  } catch (error) {
    if (error instanceof RelayError && error.kind === 'invalid') throw refusal('invalid_json');
    throw error;
  }
}

const rowOf = ({ provider, model, efforts, exact, source }: Capability) => ({
  provider,
  model,
  reasoning: efforts.length > 0,
  reasoning_efforts: efforts,
  reasoning_efforts_exact: exact,
  source,
});
