export const isPairingCode = (code: string): boolean => /^[A-Z0-9]{6}$/.test(code);

/** For logs: enough to recognize a code, too little to use it. */
export const maskCode = (code: string): string => `${code.slice(0, 2)}****`;
