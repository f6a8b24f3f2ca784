// The server of SQS of the package fauxqs on a port of this machine alone.
import { buildApp } from "fauxqs";

await buildApp({ logger: false }).listen({ host: "127.0.0.1", port: Number(process.argv[2]) });
