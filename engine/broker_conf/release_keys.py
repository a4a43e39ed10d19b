"""Which keys of a broker's file each release reads: what is new, gone, renamed, without effect, of another default.

Read from the releases' own classes by reflection (`Keys5.java`): BrokerConfig, MessageStoreConfig, NettyServerConfig,
NettyClientConfig and, since 5.3.0, AuthConfig (BrokerStartup#buildBrokerController); a test of tests/compat holds the
table against the classes of each release. Those of 4.9.8 are in `all_keys`. The names are those of the setters.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from engine.broker_conf.all_keys import all_keys

RELEASES = ("4.9.8", "5.3.1", "5.3.3", "5.4.0", "5.5.0")
_NEW: Mapping[str, str] = {
    "5.3.1": """
        accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
        ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond
        adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet asyncLearner asyncSendEnable authConfigPath
        authenticationEnabled authenticationMetadataProvider authenticationProvider authenticationStrategy
        authenticationWhitelist authorizationEnabled authorizationMetadataProvider authorizationProvider
        authorizationStrategy authorizationWhitelist autoMessageVersionOnTopicLen
        batchDispatchRequestThreadPoolNums batchWriteKvCqSize bindAddress broadcastOffsetExpireMaxSecond
        broadcastOffsetExpireSecond brokerConfigPath brokerElectionPriority brokerHeartbeatInterval
        brokerNotActiveTimeoutMillis cgColdReadThreshold channelExpiredTimeout checkSyncStateSetPeriod
        cleanOfflineBrokerInterval cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval clusterName
        coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable commercialSizePerMsg
        commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
        compatibleWithOldNameSrv configName consumerOffsetUpdateVersionStep controllerAddr
        controllerHeartBeatTimeoutMills correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
        dataReadAheadEnable defaultMessageRequestMode defaultPopShareQueueNum delayOffsetUpdateVersionStep
        deleteFileBatchMax disableCallbackExecutor disableNettyWorkerGroup disappearTimeAfterStart
        diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads
        dispatchFromSenderThread enableAsyncReput enableAutoInSyncReplicas enableBroadcastOffsetStore
        enableBuildConsumeQueueConcurrently enableCleanExpiredOffset enableCompaction enableControllerMode
        enableMixedMessageType enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease enablePopBatchAck
        enablePopBufferMerge enablePopLog enablePopMessageThreshold enableReconnectForGoAway enableRemoteEscape
        enableRetryTopicV2 enableRocksDBLog enableShutdownGracefully enableSingleTopicRegister
        enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitRegistration enableTransparentRetry
        enabledAppendPropCRC estimateAccumulation fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup
        fetchNamesrvAddrInterval forceVerifyPropCRC forwardTimeout globalColdReadThreshold haFlowControlEnable
        haMaxGapNotInSync haMaxTimeSlaveNotCatchup inBrokerContainer inSyncReplicas initAuthenticationUser
        initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials litePullMessageEnable
        litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval
        loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
        logicalDiskSpaceCleanForciblyThreshold mappedFileSizeTimerLog mappedFileSwapEnable
        mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange
        maxConsumeQueueScan maxFilterMessageSize maxHaTransferByteInSecond maxOffsetMapSize maxPopPollingSize
        maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles maxSlaveResendLength maxTopicLength
        memTableFlushIntervalMs metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
        metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
        metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit metricsPromExporterHost
        metricsPromExporterPort migrateAuthFromV1Enabled minInSyncReplicas popCkMaxBufferSize
        popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popFromRetryProbability
        popInflightMessageThreshold popPollingMapSize popPollingSize popResponseReturnActualRetryTopic
        pullBatchMaxMessageCount putConsumeQueueDataByFileChannel putMessageTimeout readUnCommitted
        realTimeNotifyConsumerChange realTimePersistRocksDBConfig recheckReputOffsetFromCq recoverConcurrently
        recoverThreadPoolNums rejectPullConsumerEnable replicasPerDiskPartition retrieveMessageFromPopRetryTopicV1
        reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rocksdbCQDoubleWriteEnable
        sampleCountThreshold sampleSteps scanAvailableNameSrv searchBcqByCacheEnable sendHeartbeatTimeoutMillis
        serverLoadBalancerEnable serverNettyWorkerGroupEnable shutdownWaitTimeSeconds skipPreOnline
        skipWhenCKRePutReachMaxTimes socksProxyConfig splitRegistrationSize statRocksDBCQIntervalSec
        statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
        statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum storePathBrokerIdentity
        storePathEpochFile storeType subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
        syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFromLastFile syncMasterFlushOffsetWhenStartup
        timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics timerFlushIntervalMs
        timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold
        timerPrecisionMs timerProgressLogIntervalMs timerPutMessageThreadNum timerRollWindowSlot
        timerSkipUnknownError timerStopEnqueue timerWheelEnable topicQueueLockNum totalReplicas
        transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
        transferMetadataJsonToRocksdb transferOffsetJsonToRocksdb travelCqFileNumWhenGetMessage
        updateNameServerAddrPeriod usePIDColdCtrStrategy useServerSideResetOffset useStaticSubscription
        userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond validateSystemTopicWhenUpdateTopic
        waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue waitTimeMillsInLitePullQueue
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    """,
    "5.3.3": """
        allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync
        bottomMostCompressionTypeForConsumeQueueStore clearRetryTopicWhenDeleteTopic configManagerVersion
        enableCreateSysGroup enableFastChannelEventProcess enableLmqStats enableNotifyBeforePopCalculateLag
        enableRegisterProducer maxStatsIdleTimeInMinutes popConsumerFSServiceInit popConsumerKVServiceEnable
        popConsumerKVServiceInit popConsumerKVServiceLog popLongPollingForceNotifyInterval
        popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead printChannelGroups printChannelGroupsMinNum
        recallMessageEnable rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
        spinLockCollisionRetreatOptimalDegree timerEnableRetryUntilSuccess useABSLock
    """,
    "5.4.0": """
        appendTopicForTimerDeleteKey combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
        combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType commitLogRecoverMaxNum
        enableAcceleratedRecovery enableConnectionMetrics enableLagAndDlqMetrics
        enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics enablePopMetrics
        enableRemotingMetrics enableRequestMetrics enableRunningFlagsInFlush enableSplitMetadata
        enableStatsMetrics enableTransactionMetrics indexFileReadEnable indexFileWriteEnable indexRocksDBEnable
        maxRocksDBIndexQueryDays popFromRetryProbabilityForPriority popPollingMapExpireTimeSeconds
        popReviveConcurrency priorityOrderAsc sharedByteBufferNum splitMetadataSize timerRecallToTimeWheelEnable
        timerRecallToTimelineEnable timerRocksDBEnable timerRocksDBPrecisionMs timerRocksDBRollIntervalHours
        timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
        timerWheelSnapshotFlush timerWheelSnapshotIntervalMs transRocksDBEnable transWriteOriginTransHalfEnable
        useSeparateRetryQueue useSingleRocksDBForAllConfigs writeWithoutMmap
    """,
    "5.5.0": """
        checkCommitLogOffsetOnRecover combineCQUseRocksdbForLmq enableLiteEventMode enableLitePopLog
        enableLmqQuota iteratorWhenUseRocksdbConsumeQueue liteEventCheckInterval liteEventFullDispatchDelayTime
        liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable liteLagLatencyCollectEnable
        liteLagLatencyMetricsEnable liteLagLatencyTopK liteSubscriptionCheckInterval
        liteSubscriptionCheckTimeoutMills liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount
        maxMessageFilterNumForNotification metricsExportBatchMaxDataPoints minLiteTTl
        persistConsumerOffsetIncrementally popReviveSkipIfGroupAbsent timerReputServiceCorePoolSize
        timerReputServiceMaxPoolSize timerReputServiceQueueCapacity transactionCheckRocksdbCoreThreads
        transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity useMessageFilterForNotification
        useSeparateStorePathForRocksdbCQ
    """,
}
_GONE: Mapping[str, str] = {
    "5.3.1": """
        commercialBigCount commercialEnable commercialTimerCount commercialTransCount filterServerNums
        haSlaveFallbehindMax maxDelayTime
    """,
    "5.3.3": "batchWriteKvCqSize enableTransparentRetry transferMetadataJsonToRocksdb transferOffsetJsonToRocksdb",
}
_TIERED = frozenset({"tieredStorageLevel", "tieredStoreFilePath", "tieredBackendServiceProvider"})
"""Read by the plug-in. Source: MessageStoreConfig of tieredstore."""
_ITS_OWN = frozenset({"brokerConfigPath"})
"""Set by the broker itself, whatever the file says. Source: BrokerStartup#buildBrokerController."""
RENAMED: Mapping[str, str] = {"haSlaveFallbehindMax": "haMaxGapNotInSync"}
"""By the name that is gone. Source: HAService#isSlaveOK of 4.9.8, DefaultHAService#inSyncReplicasNums of 5.x."""
NO_EFFECT: Mapping[str, str] = {"aclEnable": "5.3.3"}
"""Keys with a setter and nothing that asks for them, by the first release that is so. The plain ACL of 4.x is
gone there. Source: BrokerController#initialAcl (up to 5.3.1); BrokerConfig of 5.3.3 has no isAclEnable."""
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "autoDeleteUnusedStats": {"4.9.8": "false", "5.3.1": "true"},
    "registerBrokerTimeoutMills": {"4.9.8": "6000", "5.3.1": "24000"},
    "transactionCheckInterval": {"4.9.8": "60000", "5.3.1": "30000"},
    "transactionMetricFlushInterval": {"5.3.1": "3000", "5.4.0": "10000"},
}
"""Keys whose default differs between releases that have them: by the first release with that default."""


@functools.cache
def keys_of_release(release: str) -> frozenset[str]:
    """The keys that a broker of this release (of `RELEASES`) reads."""
    keys = set(all_keys())
    for other in RELEASES[1 : RELEASES.index(release) + 1]:
        keys = (keys | set(_NEW[other].split())) - set(_GONE.get(other, "").split())
    return frozenset(keys)


def readers_of(key: str) -> tuple[str, ...]:
    """The releases (of `RELEASES`) whose brokers read a key."""
    return tuple(release for release in RELEASES if key in keys_of_release(release))


def is_effective(key: str, release: str) -> bool:
    """Whether a broker of this release reads the key, and goes by it."""
    ends = NO_EFFECT.get(key)
    return key in keys_of_release(release) and (ends is None or RELEASES.index(release) < RELEASES.index(ends))


def default_in(key: str, release: str) -> str | None:
    """The default of one of `DEFAULTS` in this release; None: the release does not have it."""
    defaults = DEFAULTS[key]
    past = [one for one in RELEASES[: RELEASES.index(release) + 1] if one in defaults]
    return defaults[past[-1]] if past else None


def newer_brokers(key: str) -> str | None:
    """Which brokers of RocketMQ 5 read a key that those of 4.9.8 do not know; None: none, or these do."""
    if key in _TIERED:
        return "RocketMQ 5 with tiered storage"
    readers = readers_of(key)
    if not readers or readers[0] == RELEASES[0] or key in _ITS_OWN:
        return None
    if readers[-1] != RELEASES[-1]:
        return f"RocketMQ 5 up to {readers[-1]}"
    return "RocketMQ 5" if readers[0] == RELEASES[1] else f"RocketMQ {readers[0]} and later"
