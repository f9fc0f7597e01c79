import { json } from '../lib/web/json.ts';
import type { Handler } from './request.ts';

/** `GET /context/injected` (contract 04 §8). */
export const injectedContext: Handler = async (_request, relay) => json(await relay.context.read());
