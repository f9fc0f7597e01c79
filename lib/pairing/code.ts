import { randomString } from '../kit/bytes.ts';

export const newPairingCode = (): string => randomString('ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789', 6);

export const isPairingCode = (code: string): boolean => /^[A-Z0-9]{6}$/.test(code);

/** For logs: enough to recognize a code, too little to use it. */
export const maskCode = (code: string): string => `${code.slice(0, 2)}****`;
