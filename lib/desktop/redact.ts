import { createRecorder } from '../dispatch/recorder.ts';

const SECRET = /(?:password|passphrase|token|secret|otp|bearer|apikey|authorization|cookie|privatekey)$/;

/** Whether what stands under a key is a secret by its name (contract 07 §2.3). */
export const isSecretKey = (key: string): boolean => SECRET.test(key.toLowerCase().replace(/[_-]/g, ''));

/** What is written down of tools: no secrets, and no more than a screenful (contract 07 §2.3). */
export const { redact, summarise } = createRecorder({
  placeholder: (key) => (isSecretKey(key) ? '[redacted]' : undefined),
  isPrivateKey: () => false,
});
