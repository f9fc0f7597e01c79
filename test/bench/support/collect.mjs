/** Preloaded into servers whose memory is measured: collects garbage on SIGUSR2. */
process.on('SIGUSR2', () => globalThis.gc());
