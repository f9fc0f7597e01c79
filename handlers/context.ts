import { json } from '../lib/web/json.ts';
import type { Handler } from './request.ts';

const NO_STORE = { 'cache-control': 'no-store' };

/** `GET /context/injected` (contract 04 §8). */
export const injectedContext: Handler = async (_request, relay) => json(await relay.context.read(), 200, NO_STORE);
